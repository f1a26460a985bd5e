// Multiplies one packed module by both implementations and sums up the figures. The order is slab
// by slab (very wide modules only) and within a slab panel by panel of output channels. oneDNN's
// primitive can only multiply all output channels at once, so it runs before the panels, and they
// pick their columns out of its output.

#include "prepack/verify/module_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/parallel.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/gemm/model_operands.h"
#include "prepack/layouts/table.h"
#include "prepack/model/scheme.h"
#include "prepack/verify/channel_panels.h"
#include "prepack/verify/few_truth.h"
#include "prepack/verify/gemm_check.h"
#include "prepack/verify/gemm_inputs.h"
#include "prepack/verify/packed_operands.h"
#include "prepack/verify/products.h"
#include "prepack/verify/truth.h"

namespace prepack {
namespace {

// oneDNN's reference implementation computes some 2^28 products per second; batches that would take
// longer are left to the model.
constexpr uint64_t kMaxReferenceProducts = uint64_t{1} << 28;

// The models know two forms of onednn/w8a8.
bool IsModelledForm(const PackRequest& request) {
  if (!request.weights_desc) return true;
  return *request.weights_desc == DefaultW8A8Desc(request) ||
         *request.weights_desc == PlainDesc(request.k, request.n);
}

std::string NameOfActivations(const PackedModule& packed) {
  const ActivationScheme& activations = packed.request().scheme.activations;
  if (activations.type != ActivationType::kNone) return DescribeActivations(activations);
  const DType dtype = InputDType(packed);
  if (dtype == DType::kBF16) return "bf16";
  return dtype == DType::kF16 ? "f16" : "f32";
}

// For a module of zeros the ratio is undefined: outputs of zero are right to the bit, and any other
// output is as wrong as can be.
double DecibelOfZeros(const Figure& figure) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return figure.max_abs_error == 0 ? kInfinity : -kInfinity;
}

// What one panel adds to the figures.
struct PanelSums {
  bool zeros = true;                   // every weight of the panel is zero in the source
  std::vector<FigureSums> kernel;      // by batch
  std::vector<FigureSums> end_to_end;  // by batch
  FigureSums agreement;
  BaselineProductSums baseline;

  void Merge(const PanelSums& other);
};

// Panels are merged in their order, so that the figures do not depend on the threads.
void PanelSums::Merge(const PanelSums& other) {
  zeros = zeros && other.zeros;
  kernel.resize(other.kernel.size());
  end_to_end.resize(other.end_to_end.size());
  for (size_t i = 0; i < kernel.size(); ++i) {
    kernel[i].Merge(other.kernel[i]);
    end_to_end[i].Merge(other.end_to_end[i]);
  }
  agreement.Merge(other.agreement);
  baseline.Merge(other.baseline);
}

// Memory of one thread.
struct Scratch {
  TruthPanel truth;
  FewPanel few;
  UnpackBuffers unpack;
  std::vector<float> model;   // [rows, channels]
  std::vector<float> second;  // [kSecondRows, channels]
  std::vector<float> columns;
  std::vector<double> signal;
  BaselineProductBuffers baseline;
};

class ModuleMultiplication {
 public:
  ModuleMultiplication(const PackedModule& packed, const SecondDecoder& source,
                       const ProductOptions& options)
      : packed_(packed), source_(source), options_(options) {}

  Status Run(Progress& progress);
  ModuleProducts Collect() const;

 private:
  Status Prepare();
  Status PrepareSlab(const std::optional<InputSlab>& slab);
  Status RunPrimitive();
  void ChooseFew();
  Status MakeFewModel();
  Status RunPanels(Progress& progress);
  Figure FigureOf(const FigureSums& sums) const;
  Status FindBaseline();
  // The model of the first rows of the inputs.
  Result<std::unique_ptr<KernelModel>> MakeModel(uint64_t rows, std::span<const float> x) const;
  Status RunBatches(const PackedProblem& whole);
  // Why the primitive should not multiply the batch although it could; empty if it should.
  std::string_view WhyTooMuch(const GemmInfo& described, const InputBatch& batch) const;
  uint64_t RowsAtOnce(const InputBatch& batch) const;
  Status MultiplyBatch(const PackedProblem& whole, const InputBatch& batch);
  // A panel of the sample, and if its weights are all zero, others, until one is not.
  Status RunSampled(const ChannelPanel& panel, Scratch& scratch, PanelSums& sums);
  // With `again`, of a panel that is not in the sample: what its own run does not give.
  Status RunAll(const ChannelPanel& panel, bool again, Scratch& scratch, PanelSums& sums);
  Status RunFew(const ChannelPanel& panel, Scratch& scratch, PanelSums& sums);
  Status RunModel(const KernelModel& model, uint64_t rows, const ChannelPanel& panel,
                  Scratch& scratch) const;
  Status RunSecond(uint64_t n0, uint64_t channels, Scratch& scratch);
  void AddAgreement(uint64_t n0, uint64_t channels, size_t most, Scratch& scratch,
                    FigureSums& sums) const;
  // Outputs of a batch for a panel: those of the primitive, and those of the implementation that is
  // judged, of which the model's begin at row `first`.
  std::span<const float> Columns(size_t batch, uint64_t n0, uint64_t channels,
                                 Scratch& scratch) const;
  std::span<const float> First(size_t batch, uint64_t first, const ChannelPanel& panel,
                               Scratch& scratch) const;
  bool primitive_is_first() const { return primitive_y_.size() == inputs_->batches().size(); }

  const PackedModule& packed_;
  const SecondDecoder& source_;
  const ProductOptions& options_;
  ProductCut cut_;
  std::optional<GemmInputs> inputs_;  // of the slab
  std::optional<LoadedOperands> operands_;
  std::optional<GemmTruth> truth_;
  std::optional<BaselineProduct> baseline_;
  std::string no_quality_;
  bool modelled_ = true;
  // Of all rows, or of the first ones alone.
  std::unique_ptr<KernelModel> model_;
  uint64_t model_rows_ = 0;
  // The rows that all output channels are multiplied with: dense ones, and all hot ones.
  std::vector<uint64_t> few_rows_;
  std::vector<std::optional<uint64_t>> few_first_;  // by batch: the first of them, if they hold it
  std::vector<float> few_given_;
  std::unique_ptr<KernelModel> few_model_;  // none: model_
  std::optional<FewTruth> few_truth_;
  std::vector<ChannelPanel> panels_;
  WeightRounding rounding_ = WeightRounding::kNone;
  std::vector<float> activations_;  // kSecondRows rows as the kernel multiplies them, packed order
  std::vector<float> bias_;
  // Outputs of the primitive by batch, [rows, N]; only for the first batches if it is slow. All
  // batches: the primitive is judged, and the model only checks it (primitive_is_first).
  std::vector<std::vector<float>> primitive_y_;
  GemmInfo primitive_;
  Status form_;
  std::string second_name_;
  std::vector<InputBatch> batches_;  // of the first slab
  PanelSums sums_;                   // of all panels of all slabs
};

Status ModuleMultiplication::Run(Progress& progress) {
  Status status = Prepare();
  for (uint64_t slab = 0; status.ok() && slab < cut_.slabs(); ++slab) {
    status = PrepareSlab(cut_.Slab(slab));
    if (status.ok()) status = RunPrimitive();
    if (status.ok()) status = MakeFewModel();
    if (status.ok()) status = RunPanels(progress);
  }
  return status;
}

Status ModuleMultiplication::Prepare() {
  const PackRequest& request = packed_.request();
  const std::optional<WeightRounding> rounding = WeightRoundingOf(packed_.layout(), request);
  modelled_ = IsModelledForm(request);
  if (!rounding || (!modelled_ && options_.engine == nullptr)) {
    return Unsupported(fmt::format("module {}", packed_.name()),
                       "no kernel model covers this form of the weights")
        .Found(packed_.layout().id);
  }
  rounding_ = *rounding;
  PREPACK_TRY_ASSIGN(const ProductCut cut, CutProducts(packed_));
  cut_ = cut;
  return {};
}

Status ModuleMultiplication::PrepareSlab(const std::optional<InputSlab>& slab) {
  // Free what the previous slab took.
  few_truth_.reset();
  truth_.reset();
  model_.reset();
  few_model_.reset();
  inputs_.reset();
  primitive_y_.clear();
  PREPACK_TRY_ASSIGN(GemmInputs inputs, GemmInputs::Make(packed_, source_, InputDType(packed_),
                                                         options_.recorded, slab));
  inputs_ = std::move(inputs);
  if (batches_.empty()) batches_ = inputs_->batches();
  if (!operands_) {
    PREPACK_TRY_ASSIGN(LoadedOperands operands, LoadedOperands::Load(packed_));
    operands_ = std::move(operands);
    bias_ = operands_->Bias();
  }
  model_rows_ = inputs_->rows();
  PREPACK_TRY_ASSIGN(model_, MakeModel(model_rows_, inputs_->given()));

  const std::vector<double> activations = model_->Activations();
  truth_.emplace(packed_, source_, *inputs_, activations);
  PREPACK_TRY(truth_->AddBias());
  activations_.clear();
  activations_.reserve(kSecondRows * inputs_->k());
  for (uint64_t row = 0; row < kSecondRows; ++row) {
    std::ranges::transform(std::span(activations).subspan(row * inputs_->columns(), inputs_->k()),
                           std::back_inserter(activations_),
                           [](double x) { return static_cast<float>(x); });
  }
  ChooseFew();
  few_truth_.emplace(*truth_, few_rows_);
  PREPACK_TRY(FindBaseline());
  panels_ = CutChannels(packed_, cut_, baseline_.has_value());
  return {};
}

// The first Gaussian rows, recorded ones, and all that are nearly zero. Where the consumer rounds
// twice, few rows tell little of a channel.
void ModuleMultiplication::ChooseFew() {
  const bool twice = packed_.layout().consumer_scales.Of(packed_.request());
  few_rows_.clear();
  few_first_.clear();
  for (const InputBatch& batch : inputs_->batches()) {
    std::optional<uint64_t>& first = few_first_.emplace_back();
    if (batch.first >= inputs_->dense_rows()) {
      first = few_rows_.size() + batch.first - inputs_->dense_rows();
    } else if (batch.first == 0 && (batch.rows <= kSecondRows || twice)) {
      for (uint64_t row = few_rows_.size(); row < batch.rows; ++row) few_rows_.push_back(row);
      first = 0;
    } else if (batch.name == "recorded") {
      first = few_rows_.size();
      for (uint64_t row = 0; row < batch.rows; ++row) few_rows_.push_back(batch.first + row);
    }
  }
}

Status ModuleMultiplication::MakeFewModel() {
  if (primitive_is_first() || !modelled_) return {};
  const uint64_t columns = inputs_->columns();
  const auto row = [&](uint64_t index) {
    return inputs_->given().subspan(index * columns, columns);
  };
  few_given_.clear();
  for (const uint64_t index : few_rows_) {
    few_given_.insert(few_given_.end(), row(index).begin(), row(index).end());
  }
  for (uint64_t index = inputs_->dense_rows(); index < inputs_->rows(); ++index) {
    few_given_.insert(few_given_.end(), row(index).begin(), row(index).end());
  }
  PREPACK_TRY_ASSIGN(few_model_, MakeModel(few_given_.size() / columns, few_given_));
  return {};
}

Status ModuleMultiplication::FindBaseline() {
  if (options_.baseline == nullptr) return {};
  Result<BaselineProduct> baseline = BaselineProduct::Find(*options_.baseline, packed_, *inputs_);
  if (baseline.ok()) {
    baseline_ = *std::move(baseline);
    return {};
  }
  if (baseline.status().kind() != ErrorKind::kUnsupported) return baseline.status();
  no_quality_ = baseline.status().ToString();
  return {};
}

// The operands of the model point into the mapped file, which is only touched inside a visit.
Result<std::unique_ptr<KernelModel>> ModuleMultiplication::MakeModel(
    uint64_t rows, std::span<const float> x) const {
  const ModelInput input{.m = rows,
                         .dtype = InputDType(packed_),
                         .x = x.first(rows * inputs_->columns()),
                         .slab = inputs_->slab()};
  std::unique_ptr<KernelModel> made;
  Status status;
  PREPACK_TRY(packed_.VisitWeight([&](std::span<const std::byte> weight) {
    const PackRequest& request = packed_.request();
    // No model knows this form. We only need its activations, which equal those of the plain
    // layout, so model that; a blocked weight is never smaller than N·K bytes.
    Result<std::unique_ptr<KernelModel>> model =
        modelled_ ? MakeKernelModel(packed_.layout().id, operands_->With(weight), input)
                  : MakeKernelModel(kVllmInt8Plain.id,
                                    operands_->With(weight.first(request.n * request.k)), input);
    if (model.ok()) {
      made = *std::move(model);
    } else {
      status = model.status();
    }
  }));
  // The layout took the module, so if its model does not, that is a limit of the model.
  if (!status.ok()) return Unsupported(fmt::format("module {}", packed_.name()), status.ToString());
  return made;
}

Status ModuleMultiplication::RunPrimitive() {
  if (options_.engine == nullptr || !packed_.layout().by_primitive) return {};
  const PackRequest& request = packed_.request();
  Status ran;
  Status status = packed_.VisitWeight(
      [&](std::span<const std::byte> weight) {
        const PackedOperands packed = operands_->With(weight);
        ran = RunBatches({.layout = packed_.layout().id,
                          .request = request,
                          .packed = packed,
                          .input = {.m = 0, .dtype = InputDType(packed_), .x = {}},
                          .repack = options_.repack});
      },
      VisitThreads::kAny);
  // If the primitive multiplied all batches, the model only has to confirm a few rows.
  if (status.ok() && primitive_is_first() && modelled_) {
    model_rows_ = kSecondRows;
    PREPACK_TRY_ASSIGN(model_, MakeModel(model_rows_, inputs_->given()));
    return {};
  }
  if (!status.ok() || ran.ok()) return status;
  if (ran.kind() == ErrorKind::kUnsupported || ran.kind() == ErrorKind::kUnavailable) {
    if (!modelled_) return ran;
    form_ = ran;
    primitive_y_.clear();
    return {};
  }
  return ran;
}

std::string_view ModuleMultiplication::WhyTooMuch(const GemmInfo& described,
                                                  const InputBatch& batch) const {
  const uint64_t products = batch.rows * packed_.request().n * cut_.k * cut_.slabs();
  if (described.is_reference && products > kMaxReferenceProducts) {
    return "oneDNN has only a reference implementation for this module, which takes too long";
  }
  uint64_t rows = batch.rows;
  for (const std::vector<float>& y : primitive_y_) rows += y.size() / packed_.request().n;
  if (rows > kMaxOutputs / packed_.request().n)
    return "oneDNN would compute too many outputs at once";
  return "";
}

// A primitive takes all input channels, including those outside the slab, which are zero.
uint64_t ModuleMultiplication::RowsAtOnce(const InputBatch& batch) const {
  if (!inputs_->slab()) return batch.rows;
  return std::clamp<uint64_t>(kPaddedInputs / cut_.k, 1, batch.rows);
}

Status ModuleMultiplication::MultiplyBatch(const PackedProblem& whole, const InputBatch& batch) {
  const uint64_t n = packed_.request().n;
  const uint64_t k0 = inputs_->slab() ? inputs_->slab()->k0 : 0;
  const uint64_t columns = inputs_->columns();
  const std::span<const float> given =
      inputs_->given().subspan(batch.first * columns, batch.rows * columns);
  std::vector<float> y(batch.rows * n);
  std::vector<float> padded;
  for (uint64_t first = 0; first < batch.rows;) {
    if (CancellationRequested()) return Interrupted(packed_.name());
    PackedProblem problem = whole;
    problem.input.m = std::min(RowsAtOnce(batch), batch.rows - first);
    problem.input.x = given;
    if (inputs_->slab()) {
      padded.assign(problem.input.m * cut_.k, 0);
      for (uint64_t row = 0; row < problem.input.m; ++row) {
        std::ranges::copy(given.subspan((first + row) * columns, inputs_->k()),
                          padded.begin() + static_cast<std::ptrdiff_t>(row * cut_.k + k0));
      }
      problem.input.x = padded;
    }
    PREPACK_TRY_ASSIGN(GemmInfo info,
                       options_.engine->MultiplyPacked(
                           problem, std::span(y).subspan(first * n, problem.input.m * n)));
    primitive_ = std::move(info);
    first += problem.input.m;
  }
  primitive_y_.push_back(std::move(y));
  return {};
}

Status ModuleMultiplication::RunBatches(const PackedProblem& whole) {
  for (const InputBatch& batch : inputs_->batches()) {
    PackedProblem problem = whole;
    problem.input.m = RowsAtOnce(batch);
    if (CancellationRequested()) return Interrupted(packed_.name());
    PREPACK_TRY_ASSIGN(const GemmInfo described, options_.engine->DescribePacked(problem));
    // With slabs, multiply only a few rows if there is a model: for the primitive, every slab takes
    // as long as the whole module.
    if (inputs_->slab() && modelled_ && batch.rows > kSecondRows) return {};
    if (const std::string_view why = WhyTooMuch(described, batch); !why.empty()) {
      return modelled_ ? Status() : Unsupported(fmt::format("module {}", packed_.name()), why);
    }
    PREPACK_TRY(MultiplyBatch(whole, batch));
  }
  // The implementation that is judged decides how the truth rounds weights.
  if (rounding_ == WeightRounding::kToBF16 && !primitive_.rounds_weights_to_bf16) {
    rounding_ = WeightRounding::kToF32;
  }
  return {};
}

Status ModuleMultiplication::RunModel(const KernelModel& model, uint64_t rows,
                                      const ChannelPanel& panel, Scratch& scratch) const {
  scratch.model.resize(rows * panel.channels);
  Status ran;
  PREPACK_TRY(packed_.VisitWeight(
      [&](std::span<const std::byte> /*weight*/) { ran = model.Run(panel.n0, scratch.model); }));
  operands_->Finish(panel.n0, panel.channels, scratch.model);
  return ran;
}

// oneDNN on unpacked weights: the second implementation if the model is judged.
Status ModuleMultiplication::RunSecond(uint64_t n0, uint64_t channels, Scratch& scratch) {
  const InputSlab slab = inputs_->slab().value_or(InputSlab{.k0 = 0, .inputs = cut_.k});
  PREPACK_TRY(UnpackWeights(packed_, rounding_, slab, n0, channels, scratch.unpack));
  scratch.second.resize(kSecondRows * channels);
  PREPACK_TRY_ASSIGN(GemmInfo info, options_.engine->MultiplyFloats({.m = kSecondRows,
                                                                     .n = channels,
                                                                     .k = inputs_->k(),
                                                                     .x = activations_,
                                                                     .w = scratch.unpack.weights},
                                                                    scratch.second));
  for (uint64_t i = 0; i < scratch.second.size(); ++i) {
    scratch.second[i] += BiasOf(bias_, n0 + i % channels);
  }
  // The report names what multiplied the first panel.
  if (n0 == panels_.front().n0)
    second_name_ = fmt::format("{}, unpacked weights as f32", info.implementation);
  return {};
}

std::span<const float> ModuleMultiplication::Columns(size_t batch, uint64_t n0, uint64_t channels,
                                                     Scratch& scratch) const {
  const std::vector<float>& y = primitive_y_[batch];
  const uint64_t n = packed_.request().n;
  scratch.columns.resize(y.size() / n * channels);
  for (uint64_t row = 0; row < y.size() / n; ++row) {
    std::copy_n(y.data() + row * n + n0, channels, scratch.columns.data() + row * channels);
  }
  return scratch.columns;
}

std::span<const float> ModuleMultiplication::First(size_t batch, uint64_t first,
                                                   const ChannelPanel& panel,
                                                   Scratch& scratch) const {
  if (primitive_is_first()) return Columns(batch, panel.n0, panel.channels, scratch);
  const uint64_t rows = inputs_->batches()[batch].rows;
  return std::span(scratch.model).subspan(first * panel.channels, rows * panel.channels);
}

Status ModuleMultiplication::RunAll(const ChannelPanel& panel, bool again, Scratch& scratch,
                                    PanelSums& sums) {
  const auto [n0, channels, sampled] = panel;
  Status status = truth_->Compute(rounding_, n0, channels, scratch.truth);
  if (status.ok() && modelled_) status = RunModel(*model_, model_rows_, panel, scratch);
  const bool unpack = options_.engine != nullptr && primitive_y_.empty();
  if (status.ok() && unpack) status = RunSecond(n0, channels, scratch);
  if (!status.ok()) return status;

  const std::vector<InputBatch>& batches = inputs_->batches();
  for (size_t i = 0; i < batches.size(); ++i) {
    const OutputBlock block{.n0 = n0, .rows = batches[i].rows, .channels = channels};
    const uint64_t first = batches[i].first * channels;
    const std::span<const float> y = First(i, batches[i].first, panel, scratch);
    if (!again || !few_first_[i]) {
      sums.kernel[i].Add(block, std::span(scratch.truth.kernel).subspan(first, y.size()), y);
    }
    sums.end_to_end[i].Add(block, std::span(scratch.truth.exact).subspan(first, y.size()), y);
    if (baseline_ && i == baseline_->batch()) {
      status = baseline_->Add(block, scratch.truth.weights, y, scratch.baseline, sums.baseline);
      if (!status.ok()) return status;
    }
  }
  if (!again || unpack) AddAgreement(n0, channels, kAllGaussianRows, scratch, sums.agreement);
  sums.zeros = sums.zeros && std::ranges::all_of(scratch.truth.weights,
                                                 [](double weight) { return weight == 0; });
  return {};
}

Status ModuleMultiplication::RunSampled(const ChannelPanel& panel, Scratch& scratch,
                                        PanelSums& sums) {
  PREPACK_TRY(RunAll(panel, false, scratch, sums));
  // Outputs of zeros prove nothing.
  for (const ChannelPanel& other : panels_) {
    if (!sums.zeros) return {};
    if (CancellationRequested()) return Interrupted(packed_.name());
    if (!other.sampled) PREPACK_TRY(RunAll(other, true, scratch, sums));
  }
  return {};
}

Status ModuleMultiplication::RunFew(const ChannelPanel& panel, Scratch& scratch, PanelSums& sums) {
  PREPACK_TRY(few_truth_->Compute(rounding_, panel.n0, panel.channels, scratch.few));
  if (few_model_) {
    PREPACK_TRY(RunModel(*few_model_, few_given_.size() / inputs_->columns(), panel, scratch));
  } else if (modelled_) {
    PREPACK_TRY(RunModel(*model_, model_rows_, panel, scratch));
  }
  const std::vector<InputBatch>& batches = inputs_->batches();
  for (size_t i = 0; i < batches.size(); ++i) {
    if (!few_first_[i]) continue;
    const OutputBlock block{.n0 = panel.n0, .rows = batches[i].rows, .channels = panel.channels};
    const std::span<const float> y = First(i, *few_first_[i], panel, scratch);
    sums.kernel[i].Add(
        block, std::span(scratch.few.kernel).subspan(*few_first_[i] * panel.channels, y.size()), y);
  }
  // The second Gaussian batch is the last that all channels are multiplied with.
  if (!primitive_y_.empty()) {
    AddAgreement(panel.n0, panel.channels, kAllGaussianRows - 1, scratch, sums.agreement);
  }
  sums.zeros = scratch.few.zeros;
  return {};
}

// The figure of all panels. A sum of zeros proves nothing where weights could have made another.
Figure ModuleMultiplication::FigureOf(const FigureSums& sums) const {
  Figure figure = sums.Result();
  if (sums_.zeros && std::isnan(figure.sqnr_db)) figure.sqnr_db = DecibelOfZeros(figure);
  return figure;
}

// How near the two implementations are, on as many Gaussian rows as both have multiplied, of batch
// `most` at most.
void ModuleMultiplication::AddAgreement(uint64_t n0, uint64_t channels, size_t most,
                                        Scratch& scratch, FigureSums& sums) const {
  if (options_.engine == nullptr || !modelled_) return;
  std::span<const float> second = scratch.second;
  if (!primitive_y_.empty()) {
    const size_t batch = std::min(primitive_y_.size() - 1, most);
    second = Columns(batch, n0, channels, scratch);
    second = second.first(std::min(second.size(), scratch.model.size()));
  }
  const uint64_t rows = second.size() / channels;
  const std::span model = std::span(scratch.model).first(second.size());
  scratch.signal.assign(model.begin(), model.end());
  sums.Add({.n0 = n0, .rows = rows, .channels = channels}, scratch.signal, second);
}

Status ModuleMultiplication::RunPanels(Progress& progress) {
  const auto threads = static_cast<unsigned>(std::min<size_t>(options_.threads, panels_.size()));
  std::vector<Scratch> scratch(threads);
  std::vector<PanelSums> sums(panels_.size());
  Status status = ParallelFor(panels_.size(), threads, [&](size_t i, unsigned worker) -> Status {
    if (CancellationRequested()) return Interrupted(packed_.name());
    const ChannelPanel& panel = panels_[i];
    sums[i].kernel.resize(inputs_->batches().size());
    sums[i].end_to_end.resize(inputs_->batches().size());
    PREPACK_TRY(panel.sampled ? RunSampled(panel, scratch[worker], sums[i])
                              : RunFew(panel, scratch[worker], sums[i]));
    progress.Add(panel.channels * inputs_->k());
    return {};
  });
  for (const PanelSums& panel : sums) {
    if (status.ok()) sums_.Merge(panel);
  }
  return status;
}

ModuleProducts ModuleMultiplication::Collect() const {
  ModuleProducts products;
  products.form = form_;
  GemmFigures& gemm = products.gemm;
  const std::string model = fmt::format("model of {}", packed_.layout().id);
  gemm.implementation = primitive_is_first() ? primitive_.implementation : model;
  // If activations are quantized, both texts say the same in other words.
  const bool quantized = packed_.request().scheme.activations.type != ActivationType::kNone;
  gemm.activations =
      primitive_is_first() && !quantized ? primitive_.activation_type : NameOfActivations(packed_);
  gemm.inputs.reserve(batches_.size());
  for (size_t i = 0; i < batches_.size(); ++i) {
    gemm.inputs.push_back({.input = std::string(batches_[i].name),
                           .rows = batches_[i].rows,
                           .kernel = FigureOf(sums_.kernel[i]),
                           .end_to_end = FigureOf(sums_.end_to_end[i]),
                           .kernel_bar_db = 0,
                           .end_to_end_bar_db = {}});
  }
  if (options_.engine != nullptr && modelled_) {
    gemm.agreement_db = FigureOf(sums_.agreement).sqnr_db;
    gemm.second_implementation = primitive_is_first()   ? model
                                 : primitive_y_.empty() ? second_name_
                                                        : primitive_.implementation;
  }
  if (baseline_) products.quality = sums_.baseline.Figures();
  products.no_quality = no_quality_;
  return products;
}

}  // namespace

Result<ModuleProducts> MultiplyModule(const PackedModule& packed, const SecondDecoder& source,
                                      const ProductOptions& options, Progress& progress) {
  ModuleMultiplication multiplication(packed, source, options);
  PREPACK_TRY(multiplication.Run(progress));
  return multiplication.Collect();
}

}  // namespace prepack
