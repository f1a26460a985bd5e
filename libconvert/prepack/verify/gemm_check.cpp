// The GEMM level over all modules: how large a piece of a module is multiplied at a time, what that
// takes in memory, and how the verdicts of single modules become the state of the level.

#include "prepack/verify/gemm_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/dtype.h"
#include "prepack/base/status.h"
#include "prepack/kernels/memory.h"
#include "prepack/kernels/strip_products.h"
#include "prepack/layouts/table.h"
#include "prepack/model/panel.h"
#include "prepack/verify/channel_panels.h"
#include "prepack/verify/channel_truth.h"
#include "prepack/verify/decoded_weights.h"
#include "prepack/verify/gemm_inputs.h"
#include "prepack/verify/judgement.h"
#include "prepack/verify/measured.h"
#include "prepack/verify/packed_operands.h"
#include "prepack/verify/second/decoder.h"
#include "prepack/verify/truth.h"

namespace prepack {
namespace {

// With more channels, outputs would need more memory than weights.
constexpr uint64_t kMostPanelChannels = 4096;
// A slab with the fewest channels has twice the weights of a panel.
constexpr uint64_t kSlabInputs = 2 * kPanelWeights / kModelUnit;

// A slab begins at a multiple of this many input channels, as the models, the decoders of the
// source and the unpacking functions require.
uint64_t UnitOfSlabs(const PackedModule& packed) {
  const PackRequest& request = packed.request();
  const uint64_t of_models = SlabUnit(request.k, request.scheme.group_size);
  const TileCut cut = packed.layout().cut(request);
  return std::lcm(std::lcm(of_models, kSecondInputsUnit), std::lcm(cut.cols, kPanelColsMultiple));
}

// The first multiple of `unit` that is one of what the layout and its strips require.
uint64_t CommonMultiple(const PackedModule& packed, uint64_t unit) {
  const TileCut cut = packed.layout().cut(packed.request());
  return std::lcm(unit, std::lcm(cut.rows, cut.strip_rows));
}

// `inputs` at once: all of them, or those of a slab.
ProductCut CutInto(const PackedModule& packed, uint64_t inputs) {
  const uint64_t unit = CommonMultiple(packed, kModelUnit);
  const uint64_t most = std::min(kPanelWeights / inputs, kMostPanelChannels);
  // Where output channels lie side by side, their 4-bit codes fill whole lines of the cache.
  const uint64_t line = std::lcm(unit, uint64_t{2 * kLineBytes});
  return {.k = packed.request().k,
          .slab_inputs = inputs,
          .channels = std::max<uint64_t>(1, most / unit) * unit,
          .compared = std::max<uint64_t>(1, most / line) * line,
          .unit = unit,
          .tile = CommonMultiple(packed, 1)};
}

}  // namespace

uint64_t ProductCut::slabs() const {
  return CeilDiv(k, slab_inputs);
}

std::optional<InputSlab> ProductCut::Slab(uint64_t index) const {
  if (slab_inputs == k) return std::nullopt;
  const uint64_t k0 = index * slab_inputs;
  return InputSlab{.k0 = k0, .inputs = std::min(slab_inputs, k - k0)};
}

Result<ProductCut> CutProducts(const PackedModule& packed) {
  const uint64_t k = packed.request().k;
  if (k <= kMostWholeInputs) return CutInto(packed, k);
  const uint64_t unit = UnitOfSlabs(packed);
  if (unit > kMostWholeInputs) {
    return Unsupported(fmt::format("module {}", packed.name()),
                       "it has too many input channels to multiply at once, and its groups cannot "
                       "be cut into slabs")
        .Found(
            fmt::format("{} input channels in groups of {}", k, packed.request().scheme.group_size))
        .Expected(fmt::format("at most {}, or groups of a multiple of 128", kMostWholeInputs));
  }
  return CutInto(packed, std::max<uint64_t>(1, kSlabInputs / unit) * unit);
}

namespace {

// The shape of the piece that is multiplied at a time.
struct Pass {
  uint64_t k = 0;
  uint64_t inputs = 0;  // of a slab
  uint64_t channels = 0;
  uint64_t compared = 0;
  uint64_t groups = 0;
  uint64_t rows = 0;       // of activations
  uint64_t row_bytes = 0;  // of codes of all input channels
  bool slabs = false;
  bool scattered = false;  // the input channels of a slab lie anywhere
};

Pass PassOf(const PackRequest& request, const ProductCut& cut, bool recorded) {
  const bool slabs = cut.slab_inputs != cut.k;
  return {.k = cut.k,
          .inputs = cut.slab_inputs,
          .channels = std::min(cut.channels, request.n),
          .compared = std::min(cut.compared, request.n),
          .groups = request.groups(),
          .rows = kGaussianRows + kOutlierRows + (recorded ? kMaxRecordedRows : 0) + kMaxHotRows,
          .row_bytes = PanelRowBytes(request.scheme.code, cut.k),
          .slabs = slabs,
          .scattered = slabs && request.reordered};
}

// Activations as the model multiplies them, and those of the second implementation.
uint64_t MemoryOfModel(const Pass& pass) {
  const uint64_t hot = kMaxHotRows * (pass.inputs / kMaxHotRows / 16 + 1) * 64;
  return pass.inputs * (pass.rows + kSecondRows) * sizeof(float) + hot + pass.k / 8;
}

// All parts except the weight, as stored and as floats.
uint64_t MemoryOfParts(const PackedModule& packed) {
  uint64_t bytes = 0;
  for (const PartSpec& part : packed.parts()) {
    if (part.role == PartRole::kWeight || part.role == PartRole::kInputOrder) continue;
    bytes += TensorBytes(part.dtype, part.shape).value_or(0);
    uint64_t elements = 1;
    for (const uint64_t size : part.shape) elements *= size;
    bytes += 2 * elements * sizeof(float);
  }
  return bytes + packed.request().n * 3 * sizeof(double);
}

// Inputs and outputs of oneDNN's primitive.
uint64_t MemoryOfPrimitive(const PackedModule& packed, const Pass& pass, bool repack) {
  const uint64_t n = packed.request().n;
  const uint64_t rows = kGaussianRows + 2 * kSecondRows + 1 + pass.rows;  // of all batches
  const uint64_t fed =
      pass.slabs ? std::clamp<uint64_t>(kPaddedInputs / pass.k, 1, kSecondRows) : pass.rows;
  const uint64_t outputs = std::min(kMaxOutputs, rows * n) * sizeof(float);
  return outputs + fed * (pass.k * 12 + n * sizeof(float)) + (repack ? 2 * pass.k * n : 0);
}

// Output channels that are unpacked and multiplied with all activations at a time.
uint64_t ChannelsAtATime(const PackedModule& packed, const ProductCut& cut, const Pass& pass,
                         const ProductOptions& options) {
  const bool all = options.sampled_weights == UINT64_MAX || options.baseline != nullptr ||
                   options.recorded != nullptr || !IsModelledForm(packed.request());
  if (all) return pass.channels;
  uint64_t most = 0;
  for (const ChannelPanel& panel : SampledChannels(packed, cut, options.sampled_weights)) {
    most = std::max(most, cut.Unpacked(panel.n0, panel.channels, packed.request().n));
  }
  return most;
}

// What every output channel is checked with: a piece of decoded weights, with the words and codes
// that they are made of, and where a digest differs, a strip of weights three times.
uint64_t MemoryOfChannelCheck(const Pass& pass) {
  return 3 * kPieceBytes + 2 * kPieceUnit * pass.inputs * sizeof(float) +
         kStripChannels * pass.inputs * (2 * sizeof(double) + sizeof(float)) +
         pass.compared * pass.groups * (sizeof(double) + 2 * sizeof(float)) +
         kMaxHotRows * pass.compared * (sizeof(double) + sizeof(float)) +
         pass.inputs * 3 * sizeof(uint64_t);
}

// Weights in f64, as steps and as floats, twice; the bytes that they are decoded from; scales;
// outputs.
uint64_t MemoryOfThread(const PackedModule& packed, const ProductCut& cut, const Pass& pass,
                        const ProductOptions& options) {
  const uint64_t channels = ChannelsAtATime(packed, cut, pass, options);
  const uint64_t weights = channels * pass.inputs;
  uint64_t bytes = weights * (sizeof(double) + 3 * sizeof(float) + 4) +
                   channels * pass.groups * (2 * sizeof(double) + 3 * sizeof(float)) +
                   pass.rows * channels * (3 * sizeof(double) + 3 * sizeof(float)) +
                   MemoryOfChannelCheck(pass);
  // Strips hold all input channels.
  const TileCut tiles = packed.layout().cut(packed.request());
  if (pass.slabs && !tiles.by_inputs) bytes += tiles.rows * (pass.row_bytes + 16 * pass.groups);
  if (pass.scattered) bytes += 8 * pass.k * 3 * sizeof(float) + pass.k * 3 * sizeof(uint64_t);
  if (options.baseline != nullptr) {
    bytes += weights * (sizeof(double) + (pass.slabs ? 0 : sizeof(float))) +
             pass.k * sizeof(float) + pass.rows * channels * sizeof(double);
  }
  return bytes;
}

}  // namespace

MemoryNeed MemoryOfProducts(const PackedModule& packed, const ProductOptions& options) {
  // Stacked experts are multiplied one by one.
  if (packed.request().stacked()) return MemoryOfProducts(packed.OneExpert(0), options);
  if (packed.layout().checkpoint) return MemoryOfDecoding(packed);
  const Result<ProductCut> cut = CutProducts(packed);
  if (!cut.ok()) return {};
  const Pass pass = PassOf(packed.request(), *cut, options.recorded != nullptr);
  MemoryNeed need{.shared = MemoryOfModel(pass) + MemoryOfParts(packed),
                  .per_thread = MemoryOfThread(packed, *cut, pass, options)};
  if (options.engine != nullptr && packed.layout().by_primitive) {
    need.per_thread += ChannelsAtATime(packed, *cut, pass, options) * pass.k;  // a copy
    need.shared += MemoryOfPrimitive(packed, pass, options.repack);
  }
  // What all modules share counts once, for the pass.
  if (options.inputs == nullptr || !options.inputs->Keeps(packed, options.recorded)) {
    need.shared += BytesOfInputs(pass.inputs, options.recorded != nullptr);
  }
  return need;
}

namespace {

// An error that concerns only this module; any other error ends the verification.
bool IsOfTheModule(const Status& status) {
  return status.kind() == ErrorKind::kUnsupported || status.kind() == ErrorKind::kUnavailable ||
         status.kind() == ErrorKind::kMalformed;
}

// Adds why a module was not `done`: "multiplied".
void ReportFailure(const Status& status, std::string_view done, Level level,
                   ModuleVerification& module, LevelResult& result) {
  if (status.kind() == ErrorKind::kMalformed) {
    module.state(level) = LevelState::kFailed;
    result.FailModule(module.module, fmt::format("cannot be {}: {}", done, status.ToString()));
    return;
  }
  result.problems.push_back({module.module, "module " + module.module,
                             fmt::format("not {}: {}", done, status.ToString())});
}

// Of a module, or of one expert of a stack.
template <typename T, typename Measure>
Result<T> MeasureProduct(std::string_view kind, const PackedModule& packed,
                         const std::string& module, Measurements& measured, Measure measure) {
  const std::string name =
      packed.expert() ? fmt::format("{} {}", module, *packed.expert()) : module;
  return measured.Of<T>({.kind = kind, .name = name, .unit = UnitOfModule(module)}, measure);
}

// The lowest kernel figure; infinite without any.
double WorstKernelDb(const std::optional<GemmFigures>& figures) {
  double worst = std::numeric_limits<double>::infinity();
  if (!figures) return worst;
  for (const InputFigures& input : figures->inputs) {
    worst = std::min(worst, input.kernel.sqnr_db);
  }
  return worst;
}

// Of all experts the report shows the one whose product is the worst, with channels counted in the
// stack. An expert outside the sample has the kernel figure of the last activations alone.
void KeepWorseProduct(std::optional<GemmFigures> own, uint64_t first_channel,
                      std::optional<GemmFigures>& worst) {
  if (!own) return;
  for (InputFigures& input : own->inputs) {
    input.kernel.worst_channel += first_channel;
    input.end_to_end.worst_channel += first_channel;
  }
  if (worst && own->channels == 0) {
    Figure& kernel = worst->inputs.back().kernel;
    if (own->inputs.back().kernel.sqnr_db < kernel.sqnr_db) kernel = own->inputs.back().kernel;
  } else if (!worst || WorstKernelDb(own) < WorstKernelDb(worst)) {
    worst = std::move(own);
  }
}

// Of a stack of small experts as many meet all activations as make up the sample of one module.
// Where all channels are to meet them, this does not count.
bool IsInSampleOfStack(const PackedModule& packed, uint64_t sampled_weights) {
  const uint64_t weights = packed.request().n * packed.request().k;
  const uint64_t every = sampled_weights / std::max<uint64_t>(weights, 1);
  return packed.expert().value_or(0) % std::max<uint64_t>(every, 1) == 0;
}

void KeepWorseQuality(const std::optional<QualityFigures>& own,
                      std::optional<QualityFigures>& worst) {
  if (!own) return;
  const auto lower = [](const std::optional<double>& a, const std::optional<double>& b) {
    return a && (!b || *a < *b);
  };
  if (!worst) worst = own;
  if (lower(own->weight_sqnr_db, worst->weight_sqnr_db))
    worst->weight_sqnr_db = own->weight_sqnr_db;
  if (lower(own->output_sqnr_db, worst->output_sqnr_db))
    worst->output_sqnr_db = own->output_sqnr_db;
}

// What one expert added to a level, under its number.
void AddOfExpert(uint64_t expert, LevelResult own, LevelResult& all) {
  for (std::vector<Problem>* list : {&own.problems, &own.notes}) {
    for (Problem& problem : *list) {
      problem.message = fmt::format("expert {}: {}", expert, problem.message);
    }
  }
  all.Add(std::move(own));
}

// The state of all experts so far: failed if one has, passed if all have.
LevelState Together(LevelState all, LevelState own) {
  if (all == LevelState::kFailed || own == LevelState::kFailed) return LevelState::kFailed;
  return all == LevelState::kPassed ? own : all;
}

}  // namespace

GemmCheck::GemmCheck(const PackedFolder& folder, const SecondDecoder& source,
                     const GemmOptions& options, const SqnrBars& bars, Progress& progress)
    : folder_(folder), source_(source), options_(options), bars_(bars), progress_(progress) {
  for (const auto& [name, record] : folder.manifest().modules) {
    Module& module = modules_.emplace_back();
    module.name = &name;
    module.record = &record;
    module.found.module = name;
  }
  // By the manifest, so that all parts of a verification choose the same.
  std::set<std::string> kinds;
  for (const Module& module : modules_) {
    if (!InSample(options.sample, *module.name)) continue;
    if (kinds.insert(KindOfModule(*module.record)).second) whole_.insert(*module.name);
  }
}

uint64_t GemmCheck::weights() const {
  uint64_t weights = 0;
  for (const Module& module : modules_) {
    if (InSample(options_.sample, *module.name)) weights += module.record->n * module.record->k;
  }
  return measured_->ShareOf(weights);
}

Status GemmCheck::Begin() {
  std::call_once(begun_, [&] {
    if (options_.begin) begin_ = options_.begin();
  });
  return begin_;
}

Status GemmCheck::Multiply(size_t index, unsigned threads) {
  Module& module = modules_[index];
  if (!InSample(options_.sample, *module.name)) return {};
  if (measured_->is_part() && !measured_->Measures(UnitOfModule(*module.name))) return {};
  PREPACK_TRY(Begin());
  if (!options_.judge_gemm && !options_.judge_quality) {
    progress_.Add(module.record->n * module.record->k);
    return {};
  }
  PREPACK_TRY_ASSIGN(const PackedModule packed,
                     PackedModule::Open(folder_, *module.name, *module.record));
  return packed.request().stacked()
             ? RunExperts(packed, threads, module)
             : RunModule(packed, *module.record, {.threads = threads}, module.found, module.levels);
}

std::optional<Problem> GemmCheck::FirstProblem() const {
  for (const Module& module : modules_) {
    if (!module.levels.gemm.problems.empty()) return module.levels.gemm.problems.front();
  }
  return std::nullopt;
}

GemmLevels GemmCheck::Finish(ModuleFigures& figures) {
  GemmLevels levels;
  std::vector<const ModuleVerification*> judged;
  for (Module& module : modules_) {
    if (!InSample(options_.sample, *module.name)) continue;
    ModuleVerification& figure = figures.at(*module.name);
    for (const Level level : {Level::kGemm, Level::kQuality}) {
      figure.state(level) = module.found.state(level);
    }
    figure.gemm = std::move(module.found.gemm);
    figure.quality = module.found.quality;
    levels.gemm.Add(std::move(module.levels.gemm));
    levels.quality.Add(std::move(module.levels.quality));
    judged.push_back(&figure);
  }
  if (options_.judge_gemm) {
    Conclude(judged, Level::kGemm,
             "some modules were not multiplied, or their result proves nothing", levels.gemm);
  }
  if (options_.judge_quality) {
    NoteOutliers(folder_.manifest(), figures, levels.quality);
    Conclude(judged, Level::kQuality, "some modules could not be compared", levels.quality);
  }
  return levels;
}

Status GemmCheck::CompareModule(const PackedModule& packed, unsigned threads,
                                ModuleVerification& found, LevelResult& result) const {
  const Result<DecodedDifferences> differences =
      MeasureProduct<DecodedDifferences>("decoded", packed, found.module, *measured_, [&] {
        return options_.packed_source != nullptr
                   ? options_.packed_source->Compare(packed, options_.output, threads, progress_)
                   : CompareDecoded(packed, source_, *options_.output, threads, progress_);
      });
  if (!differences.ok()) {
    if (!IsOfTheModule(differences.status())) return differences.status();
    ReportFailure(differences.status(), "decoded", Level::kGemm, found, result);
    return {};
  }
  found.state(Level::kGemm) = differences->none() ? LevelState::kPassed : LevelState::kFailed;
  if (!differences->none()) result.FailModule(found.module, differences->Describe());
  return {};
}

void GemmCheck::ReportMissing(const Status& status, ModuleVerification& found,
                              GemmLevels& levels) const {
  if (options_.judge_gemm) {
    ReportFailure(status, "multiplied", Level::kGemm, found, levels.gemm);
  }
  if (options_.judge_quality) {
    ReportFailure(status, "multiplied", Level::kQuality, found, levels.quality);
  }
}

Status GemmCheck::RunModule(const PackedModule& packed, const ModuleRecord& record,
                            const Means& means, ModuleVerification& found,
                            GemmLevels& levels) const {
  const bool plain = options_.packed_source != nullptr && &packed.layout() == &kPlainBf16;
  if (packed.layout().checkpoint || plain) {
    if (options_.judge_quality) {
      ReportFailure(Unsupported(packed.name(), "no kernel reads a checkpoint"), "multiplied",
                    Level::kQuality, found, levels.quality);
    }
    return options_.judge_gemm ? CompareModule(packed, means.threads, found, levels.gemm)
                               : Status();
  }
  if (options_.packed_source != nullptr) {
    ReportMissing(
        Unsupported(packed.name(),
                    "the source is a packed folder, which has no second decoder: compare with "
                    "the checkpoint that it was made from"),
        found, levels);
    return {};
  }
  ProductOptions products = options_.products;
  products.threads = means.threads;
  products.memory = means.memory;
  products.whole = MultipliesWhole(packed);
  products.channels_only = !IsInSampleOfStack(packed, products.sampled_weights);
  Result<ModuleProducts> result = MeasureProduct<ModuleProducts>(
      "products", packed, found.module, *measured_,
      [&] { return MultiplyModule(packed, source_, products, progress_); });
  if (result.ok() && measured_->is_part()) return {};  // the merge judges
  if (result.ok()) {
    Judge(packed, record, *std::move(result), found, levels);
    return {};
  }
  if (!IsOfTheModule(result.status())) return result.status();
  ReportMissing(result.status(), found, levels);
  return {};
}

void GemmCheck::Judge(const PackedModule& packed, const ModuleRecord& record,
                      ModuleProducts products, ModuleVerification& found,
                      GemmLevels& levels) const {
  if (options_.judge_gemm) {
    const std::optional<double> wanted = bars_.Of(found.module);
    const ModuleBars bars{
        .kernel_db = KernelBar(InputDType(packed)),
        .rounded_twice = packed.layout().consumer_scales.Of(packed.request()),
        .cancels = record.scheme.activations.dynamic && !record.scheme.activations.symmetric,
        .end_to_end_db = wanted.value_or(
            DefaultEndToEndBar(record.scheme.activations, packed.layout().cuts_fractions)),
        .recorded_db = wanted};
    found.gemm = std::move(products.gemm);
    JudgeProducts(bars, found, levels.gemm);
    JudgeForm(products.form, record, found, levels.gemm);
    if (!products.weights.none()) {
      found.state(Level::kGemm) = LevelState::kFailed;
      levels.gemm.FailModule(found.module, products.weights.Describe());
    }
  }
  if (options_.judge_quality) {
    found.quality = products.quality;
    JudgeQuality(products.no_quality, found, levels.quality);
  }
}

Status GemmCheck::RunExperts(const PackedModule& packed, unsigned threads, Module& module) const {
  std::array<LevelState, 2> states = {LevelState::kPassed, LevelState::kPassed};
  ProductMemory memory;
  const Means means{.threads = threads, .memory = &memory};
  for (uint64_t expert = 0; expert < packed.request().experts; ++expert) {
    ModuleVerification own;
    own.module = *module.name;
    GemmLevels levels;
    PREPACK_TRY(RunModule(packed.OneExpert(expert), *module.record, means, own, levels));
    states[0] = Together(states[0], own.state(Level::kGemm));
    states[1] = Together(states[1], own.state(Level::kQuality));
    AddOfExpert(expert, std::move(levels.gemm), module.levels.gemm);
    AddOfExpert(expert, std::move(levels.quality), module.levels.quality);
    KeepWorseProduct(std::move(own.gemm), expert * packed.request().n_of_expert(),
                     module.found.gemm);
    KeepWorseQuality(own.quality, module.found.quality);
  }
  module.found.state(Level::kGemm) = states[0];
  module.found.state(Level::kQuality) = states[1];
  return {};
}

}  // namespace prepack
