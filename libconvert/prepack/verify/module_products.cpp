// Multiplies one packed module by both implementations and sums up the figures. The order is slab
// by slab (very wide modules only) and within a slab panel by panel of output channels. oneDNN's
// primitive can only multiply all output channels at once, so it runs before the panels, and they
// pick their columns out of its output.

#include "prepack/verify/module_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
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
#include "prepack/verify/channel_check.h"
#include "prepack/verify/channel_panels.h"
#include "prepack/verify/gemm_check.h"
#include "prepack/verify/gemm_inputs.h"
#include "prepack/verify/input_cache.h"
#include "prepack/verify/packed_operands.h"
#include "prepack/verify/primitive_product.h"
#include "prepack/verify/products.h"
#include "prepack/verify/truth.h"

namespace prepack {

bool IsModelledForm(const PackRequest& request) {
  if (!request.weights_desc) return true;
  return *request.weights_desc == DefaultW8A8Desc(request) ||
         *request.weights_desc == PlainDesc(request.k, request.n);
}

namespace {

std::string NameOfActivations(const PackedModule& packed) {
  const ActivationScheme& activations = packed.request().scheme.activations;
  if (activations.type != ActivationType::kNone) return DescribeActivations(activations);
  const DType dtype = InputDType(packed);
  if (dtype == DType::kBF16) return "bf16";
  return dtype == DType::kF16 ? "f16" : "f32";
}

// Rows that are zero but for some channels.
bool IsHot(const InputBatch& batch) {
  return batch.name == "one-hot";
}

// What one panel adds to the figures.
struct PanelSums : BatchSums {
  FigureSums agreement;
  BaselineProductSums baseline;
  DecodedDifferences weights;

  void Merge(const PanelSums& other);
};

// Panels are merged in their order, so that the figures do not depend on the threads.
void PanelSums::Merge(const PanelSums& other) {
  BatchSums::Merge(other);
  agreement.Merge(other.agreement);
  baseline.Merge(other.baseline);
  weights = Together(std::array{weights, other.weights});
}

}  // namespace

struct ProductMemory::OfThread {
  TruthPanel truth;
  ChannelScratch channels;
  UnpackBuffers unpack;
  std::vector<float> model;   // [rows, channels]
  std::vector<float> second;  // [kSecondRows, channels]
  std::vector<float> columns;
  PrimitivePanel primitive;
  std::vector<double> signal;
  BaselineProductBuffers baseline;
};

ProductMemory::ProductMemory() = default;
ProductMemory::~ProductMemory() = default;

std::span<ProductMemory::OfThread> ProductMemory::Of(unsigned threads) {
  if (threads_.size() < threads) threads_.resize(threads);
  return threads_;
}

namespace {

using Scratch = ProductMemory::OfThread;

class ModuleMultiplication {
 public:
  ModuleMultiplication(const PackedModule& packed, const SecondDecoder& source,
                       const ProductOptions& options)
      : packed_(packed),
        source_(source),
        options_(options),
        cache_(options.inputs != nullptr ? *options.inputs : own_cache_),
        memory_(options.memory != nullptr ? *options.memory : own_memory_) {}

  Status Run(Progress& progress);
  ModuleProducts Collect() const;

 private:
  Status Prepare();
  Status PrepareSlab(const std::optional<InputSlab>& slab);
  Status RunPrimitive();
  Status PrepareModel();
  bool MultipliesAll() const;
  uint64_t SampledCount() const;  // output channels
  Status RunPanels(Progress& progress);
  Status FindBaseline();
  // The model of the first rows of the inputs.
  Result<std::unique_ptr<KernelModel>> MakeModel(uint64_t rows, std::span<const float> x) const;
  // A panel of the sample, and if its weights are all zero, others, until one is not.
  Status RunSampled(const ChannelPanel& panel, Scratch& scratch, PanelSums& sums);
  Status RunAll(const ChannelPanel& panel, Scratch& scratch, PanelSums& sums);
  // What every output channel gets.
  Status RunChannels(const ChannelPanel& panel, Scratch& scratch, PanelSums& sums);
  Status RunModel(uint64_t n0, uint64_t channels, Scratch& scratch) const;
  Status RunSecond(uint64_t n0, uint64_t channels, Scratch& scratch);
  Status RunPrimitivePanel(uint64_t n0, uint64_t channels, Scratch& scratch) const;
  void AddAgreement(uint64_t n0, uint64_t channels, Scratch& scratch, FigureSums& sums) const;
  // Outputs of a batch for a panel: those of the primitive, and those of the implementation that is
  // judged.
  std::span<const float> Columns(size_t batch, uint64_t n0, uint64_t channels,
                                 Scratch& scratch) const;
  std::span<const float> First(size_t batch, uint64_t n0, uint64_t channels,
                               Scratch& scratch) const;
  uint64_t primitive_batches() const { return primitive_ ? primitive_->batches() : 0; }
  bool primitive_is_first() const { return primitive_batches() == inputs_->batches().size(); }
  // Does the model multiply the hot rows where the primitive multiplies the sample alone?
  bool ModelMultipliesAll() const {
    return primitive_ && primitive_->by_panels() && !options_.whole;
  }

  const PackedModule& packed_;
  const SecondDecoder& source_;
  const ProductOptions& options_;
  InputCache own_cache_;
  InputCache& cache_;
  ProductMemory own_memory_;
  ProductMemory& memory_;
  ProductCut cut_;
  std::shared_ptr<const GemmInputs> inputs_;  // of the slab
  std::optional<PinnedBytes> weight_;
  std::optional<LoadedOperands> operands_;
  std::optional<GemmTruth> truth_;
  std::optional<BaselineProduct> baseline_;
  std::string no_quality_;
  bool modelled_ = true;
  // Of the dense rows, or of the first ones alone.
  std::unique_ptr<KernelModel> model_;
  uint64_t model_rows_ = 0;
  std::optional<ChannelCheck> channels_;  // none: no model knows the form of the weights
  std::vector<ChannelPanel> sample_;      // of the channels that all rows are multiplied with
  std::vector<ChannelPanel> panels_;      // of all channels; none: the sample is all
  WeightRounding rounding_ = WeightRounding::kNone;
  std::vector<float> activations_;  // kSecondRows rows as the kernel multiplies them, packed order
  std::vector<float> bias_;
  // None: no primitive multiplies these weights here. If it has multiplied all batches, it is
  // judged, and the model only checks it (primitive_is_first).
  std::optional<PrimitiveProduct> primitive_;
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
    if (status.ok()) status = PrepareModel();
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
  channels_.reset();
  truth_.reset();
  model_.reset();
  inputs_.reset();
  primitive_.reset();
  PREPACK_TRY_ASSIGN(inputs_, cache_.Inputs(packed_, source_, options_.recorded, slab));
  if (batches_.empty()) batches_ = inputs_->batches();
  if (!operands_) {
    PREPACK_TRY_ASSIGN(weight_, packed_.PinWeight());
    PREPACK_TRY_ASSIGN(LoadedOperands operands, LoadedOperands::Load(packed_));
    operands_ = std::move(operands);
    bias_ = operands_->Bias();
  }
  model_rows_ = inputs_->dense_rows();
  const std::span hot = inputs_->given().subspan(model_rows_ * inputs_->columns());
  PREPACK_TRY_ASSIGN(std::unique_ptr<KernelModel> hot_model, MakeModel(inputs_->hot().size(), hot));
  PREPACK_TRY_ASSIGN(auto kernel_rows,
                     cache_.KernelRows(inputs_, [&]() -> Result<const KernelModel*> {
                       PREPACK_TRY_ASSIGN(model_, MakeModel(model_rows_, inputs_->given()));
                       return model_.get();
                     }));
  truth_.emplace(packed_, source_, *inputs_, std::move(kernel_rows), *hot_model);
  PREPACK_TRY(truth_->AddBias());
  if (modelled_) {
    channels_.emplace(packed_, *weight_, *operands_, *truth_,
                      *WeightRoundingOf(packed_.layout(), packed_.request()), std::move(hot_model));
  }
  PREPACK_TRY(FindBaseline());
  sample_.clear();
  if (MultipliesAll()) {
    sample_ = CutChannels(packed_, cut_.channels);
  } else if (!options_.channels_only) {
    sample_ = SampledChannels(packed_, cut_, options_.sampled_weights);
  }
  panels_.clear();
  const bool is_all = options_.sample_only || SampledCount() == packed_.request().n;
  if (!is_all) panels_ = CutChannels(packed_, cut_.compared);
  return {};
}

uint64_t ModuleMultiplication::SampledCount() const {
  uint64_t channels = 0;
  for (const ChannelPanel& panel : sample_) channels += panel.channels;
  return channels;
}

// What the user gave numbers for is judged on all output channels.
bool ModuleMultiplication::MultipliesAll() const {
  const bool recorded = std::ranges::any_of(
      inputs_->batches(), [](const InputBatch& batch) { return batch.name == "recorded"; });
  return options_.sampled_weights == UINT64_MAX || !modelled_ || recorded || baseline_.has_value();
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

// The operands of the model point into the pinned weight, which is only touched inside a visit.
Result<std::unique_ptr<KernelModel>> ModuleMultiplication::MakeModel(
    uint64_t rows, std::span<const float> x) const {
  const ModelInput input{.m = rows,
                         .dtype = InputDType(packed_),
                         .x = x.first(rows * inputs_->columns()),
                         .slab = inputs_->slab()};
  std::unique_ptr<KernelModel> made;
  Status status;
  PREPACK_TRY(weight_->Visit([&](std::span<const std::byte> weight) {
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
  const bool by_primitive = options_.engine != nullptr && packed_.layout().by_primitive;
  if (!by_primitive || sample_.empty()) return {};
  primitive_.emplace(packed_, *inputs_, cut_,
                     PrimitiveOptions{.engine = *options_.engine,
                                      .repack = options_.repack,
                                      .must_multiply = !modelled_,
                                      .sampled = !panels_.empty(),
                                      .whole = options_.whole});
  Status ran;
  PREPACK_TRY(weight_->Visit(
      [&](std::span<const std::byte> weight) {
        ran = primitive_->Multiply(operands_->With(weight));
      },
      VisitThreads::kAny));
  if (!ran.ok()) {
    const bool of_the_form =
        ran.kind() == ErrorKind::kUnsupported || ran.kind() == ErrorKind::kUnavailable;
    if (!of_the_form || !modelled_) return ran;
    form_ = ran;
    primitive_.reset();
    return {};
  }
  if (!primitive_is_first()) return {};
  // The implementation that is judged decides how the truth rounds weights.
  if (rounding_ == WeightRounding::kToBF16 && !primitive_->info().rounds_weights_to_bf16) {
    rounding_ = WeightRounding::kToF32;
  }
  return {};
}

// What multiplies beside the primitive.
Status ModuleMultiplication::PrepareModel() {
  if (!modelled_ || sample_.empty()) return {};
  if (primitive_is_first()) {
    // The model only has to confirm a few rows.
    model_rows_ = kSecondRows;
    model_.reset();
  }
  if (!model_) {
    PREPACK_TRY_ASSIGN(model_, MakeModel(model_rows_, inputs_->given()));
  }
  activations_.clear();
  if (options_.engine == nullptr || primitive_batches() != 0) return {};
  std::vector<double> row(inputs_->columns());
  for (uint64_t m = 0; m < kSecondRows; ++m) {
    model_->CopyActivations(m, row);
    const std::span own = std::span(row).first(inputs_->k());
    std::ranges::transform(own, std::back_inserter(activations_),
                           [](double x) { return static_cast<float>(x); });
  }
  return {};
}

Status ModuleMultiplication::RunModel(uint64_t n0, uint64_t channels, Scratch& scratch) const {
  scratch.model.resize(model_rows_ * channels);
  Status ran;
  PREPACK_TRY(weight_->Visit(
      [&](std::span<const std::byte> /*weight*/) { ran = model_->Run(n0, scratch.model); }));
  operands_->Finish(n0, channels, scratch.model);
  return ran;
}

// oneDNN on unpacked weights: the second implementation if the model is judged.
Status ModuleMultiplication::RunSecond(uint64_t n0, uint64_t channels, Scratch& scratch) {
  const InputSlab slab = inputs_->slab().value_or(InputSlab{.k0 = 0, .inputs = cut_.k});
  const uint64_t unpacked = cut_.Unpacked(n0, channels, packed_.request().n);
  PREPACK_TRY(UnpackWeights(packed_, rounding_, slab, n0, unpacked, scratch.unpack));
  const std::span<const float> weights = scratch.unpack.weights;
  scratch.second.resize(kSecondRows * channels);
  PREPACK_TRY_ASSIGN(GemmInfo info,
                     options_.engine->MultiplyFloats({.m = kSecondRows,
                                                      .n = channels,
                                                      .k = inputs_->k(),
                                                      .x = activations_,
                                                      .w = weights.first(channels * inputs_->k())},
                                                     scratch.second));
  for (uint64_t i = 0; i < scratch.second.size(); ++i) {
    scratch.second[i] += BiasOf(bias_, n0 + i % channels);
  }
  // The report names what multiplied the first panel.
  if (n0 == sample_.front().n0)
    second_name_ = fmt::format("{}, unpacked weights as f32", info.implementation);
  return {};
}

Status ModuleMultiplication::RunPrimitivePanel(uint64_t n0, uint64_t channels,
                                               Scratch& scratch) const {
  PREPACK_TRY(weight_->Visit([&](std::span<const std::byte> weight) {
    primitive_->CopyPanel(operands_->With(weight), n0, channels, scratch.primitive);
  }));
  return primitive_->MultiplyPanel(operands_->With({}), n0, channels, scratch.primitive);
}

std::span<const float> ModuleMultiplication::Columns(size_t batch, uint64_t n0, uint64_t channels,
                                                     Scratch& scratch) const {
  const std::span<const float> y = primitive_->Outputs(batch);
  if (y.empty()) {
    const InputBatch& rows = inputs_->batches()[batch];
    return std::span(scratch.primitive.y).subspan(rows.first * channels, rows.rows * channels);
  }
  const uint64_t n = packed_.request().n;
  scratch.columns.resize(y.size() / n * channels);
  for (uint64_t row = 0; row < y.size() / n; ++row) {
    std::copy_n(y.data() + row * n + n0, channels, scratch.columns.data() + row * channels);
  }
  return scratch.columns;
}

std::span<const float> ModuleMultiplication::First(size_t batch, uint64_t n0, uint64_t channels,
                                                   Scratch& scratch) const {
  if (primitive_is_first()) return Columns(batch, n0, channels, scratch);
  const InputBatch& rows = inputs_->batches()[batch];
  if (IsHot(rows)) return scratch.channels.y;
  return std::span(scratch.model).subspan(rows.first * channels, rows.rows * channels);
}

Status ModuleMultiplication::RunAll(const ChannelPanel& panel, Scratch& scratch, PanelSums& sums) {
  const auto [n0, channels] = panel;
  PREPACK_TRY(truth_->Compute(rounding_, n0, channels, scratch.truth));
  if (modelled_) PREPACK_TRY(RunModel(n0, channels, scratch));
  if (options_.engine != nullptr && primitive_batches() == 0) {
    PREPACK_TRY(RunSecond(n0, channels, scratch));
  }
  if (primitive_ && primitive_->by_panels()) {
    PREPACK_TRY(RunPrimitivePanel(n0, channels, scratch));
  }
  // What differs comes with the panels of all channels if there are such panels, and so does the
  // kernel figure of hot rows, unless they are multiplied by another implementation.
  const bool is_all = panels_.empty();
  const bool hot_too = is_all || ModelMultipliesAll();
  if (channels_) {
    DecodedDifferences apart;
    PREPACK_TRY(
        channels_->Run(rounding_, n0, channels, scratch.channels, is_all ? sums.weights : apart));
  }
  const std::vector<InputBatch>& batches = inputs_->batches();
  for (size_t i = 0; i < batches.size(); ++i) {
    const OutputBlock block{.n0 = n0, .rows = batches[i].rows, .channels = channels};
    const uint64_t first = batches[i].first * channels;
    const std::span<const float> y = First(i, n0, channels, scratch);
    if (hot_too || !IsHot(batches[i])) {
      sums.kernel[i].Add(block, std::span(scratch.truth.kernel).subspan(first, y.size()), y);
    }
    sums.end_to_end[i].Add(block, std::span(scratch.truth.exact).subspan(first, y.size()), y);
    if (baseline_ && i == baseline_->batch()) {
      PREPACK_TRY(baseline_->Add(block, scratch.truth.weights, y, scratch.baseline, sums.baseline));
    }
  }
  AddAgreement(n0, channels, scratch, sums.agreement);
  sums.zeros = sums.zeros && std::ranges::all_of(scratch.truth.weights,
                                                 [](double weight) { return weight == 0; });
  return {};
}

Status ModuleMultiplication::RunSampled(const ChannelPanel& panel, Scratch& scratch,
                                        PanelSums& sums) {
  PREPACK_TRY(RunAll(panel, scratch, sums));
  // Outputs of zeros prove nothing. Of others no more channels are looked at, because memory has
  // been found for as many.
  for (const ChannelPanel& other : panels_) {
    if (!sums.zeros) return {};
    if (CancellationRequested()) return Interrupted(packed_.name());
    PREPACK_TRY(RunAll({.n0 = other.n0, .channels = std::min(other.channels, panel.channels)},
                       scratch, sums));
  }
  return {};
}

Status ModuleMultiplication::RunChannels(const ChannelPanel& panel, Scratch& scratch,
                                         PanelSums& sums) {
  const auto [n0, channels] = panel;
  const bool by_model = !primitive_is_first() || ModelMultipliesAll();
  const WeightRounding rounding =
      by_model ? *WeightRoundingOf(packed_.layout(), packed_.request()) : rounding_;
  PREPACK_TRY(channels_->Run(rounding, n0, channels, scratch.channels, sums.weights));
  const size_t hot = inputs_->batches().size() - 1;
  const std::span<const float> y =
      by_model ? std::span(scratch.channels.y) : Columns(hot, n0, channels, scratch);
  sums.kernel[hot].Add({.n0 = n0, .rows = inputs_->hot().size(), .channels = channels},
                       scratch.channels.truth.kernel, y);
  sums.zeros = scratch.channels.truth.zeros;
  return {};
}

// How near the two implementations are, on as many Gaussian rows as both have multiplied.
void ModuleMultiplication::AddAgreement(uint64_t n0, uint64_t channels, Scratch& scratch,
                                        FigureSums& sums) const {
  if (options_.engine == nullptr || !modelled_) return;
  std::span<const float> second = scratch.second;
  if (primitive_batches() != 0) {
    const size_t batch = std::min<size_t>(primitive_batches() - 1, kAllGaussianRows);
    second = Columns(batch, n0, channels, scratch);
    second = second.first(std::min(second.size(), scratch.model.size()));
  }
  const uint64_t rows = second.size() / channels;
  const std::span model = std::span(scratch.model).first(second.size());
  scratch.signal.assign(model.begin(), model.end());
  sums.Add({.n0 = n0, .rows = rows, .channels = channels}, scratch.signal, second);
}

Status ModuleMultiplication::RunPanels(Progress& progress) {
  const size_t sampled = sample_.size();
  const size_t count = sampled + panels_.size();
  const auto threads = static_cast<unsigned>(std::min<size_t>(options_.threads, count));
  const std::span<Scratch> scratch = memory_.Of(threads);
  std::vector<PanelSums> sums(count);
  Status status = ParallelFor(count, threads, [&](size_t i, unsigned worker) -> Status {
    if (CancellationRequested()) return Interrupted(packed_.name());
    sums[i].Resize(inputs_->batches().size());
    if (i < sampled) {
      PREPACK_TRY(RunSampled(sample_[i], scratch[worker], sums[i]));
      if (panels_.empty()) progress.Add(sample_[i].channels * inputs_->k());
      return {};
    }
    const ChannelPanel& panel = panels_[i - sampled];
    PREPACK_TRY(RunChannels(panel, scratch[worker], sums[i]));
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
  products.weights = sums_.weights;
  GemmFigures& gemm = products.gemm;
  const std::string model = fmt::format("model of {}", packed_.layout().id);
  gemm.implementation = primitive_is_first() ? primitive_->info().implementation : model;
  // If activations are quantized, both texts say the same in other words.
  const bool quantized = packed_.request().scheme.activations.type != ActivationType::kNone;
  gemm.activations = primitive_is_first() && !quantized ? primitive_->info().activation_type
                                                        : NameOfActivations(packed_);
  gemm.channels = SampledCount();
  gemm.inputs = sums_.Figures(batches_);
  if (sample_.empty()) gemm.inputs.erase(gemm.inputs.begin(), std::prev(gemm.inputs.end()));
  if (options_.engine != nullptr && modelled_ && !sample_.empty()) {
    gemm.agreement_db = sums_.FigureOf(sums_.agreement).sqnr_db;
    gemm.second_implementation = primitive_is_first()       ? model
                                 : primitive_batches() == 0 ? second_name_
                                                            : primitive_->info().implementation;
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
