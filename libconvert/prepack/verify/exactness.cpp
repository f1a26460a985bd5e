// The exactness level: every part of a packed module is unpacked and compared with the source, read
// by the same reader as in convert. This proves packing, but not reading: a mistake of the reader
// is on both sides. The GEMM level, which has its own decoder, is there to find that.

#include "prepack/verify/exactness.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "prepack/base/hash.h"
#include "prepack/base/memory.h"
#include "prepack/base/parallel.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/formats/stored_linear.h"
#include "prepack/io/mapping.h"
#include "prepack/layouts/table.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/model/module_name.h"
#include "prepack/model/scheme.h"
#include "prepack/packed/output_hash.h"
#include "prepack/packed/small_parts.h"
#include "prepack/verify/measured.h"
#include "prepack/verify/module_comparison.h"

namespace prepack {
namespace {

// Compares dtype and shape; returns the tensor of the source, or null if they differ.
const StoredTensor* FindSame(const Checkpoint& source, const TensorRecord& record,
                             std::string& problem) {
  const StoredTensor* tensor = source.Find(record.tensor);
  if (tensor == nullptr) {
    problem = "the source has no such tensor";
    return nullptr;
  }
  if (tensor->dtype == record.dtype && tensor->shape == record.shape) return tensor;
  problem = "the source has another dtype or shape for it";
  return nullptr;
}

// Whether convert can give the module such activations: the user chooses them with --scheme.
bool MayBeChosen(const QuantizedLinear& linear, const ActivationScheme& activations) {
  using enum WantedScheme;
  const auto wanted = {kAuto, kW4A16, kW4A8, kW8A8, kW8A16};
  return std::ranges::any_of(wanted, [&](WantedScheme scheme) {
    return ActivationsFor(linear.scheme(), scheme) == activations;
  });
}

// Compares what the source has in place of a packed module with what the manifest says about it.
// Empty if they agree.
std::string WhyNotTheSame(const QuantizedLinear& linear, const Scheme& scheme,
                          const ModuleRecord& record) {
  if (linear.n() != record.n || linear.k() != record.k || scheme != record.scheme) {
    return "the source has another shape or scheme than the manifest";
  }
  if (FusedMembersOf(linear) != record.fused || linear.stacked_experts() != record.experts) {
    return "the manifest lists other layers for this module than the source has";
  }
  return "";
}

// Empty: it has a bias where the source has one.
std::string WhyBiasIsWrong(const Checkpoint& source, const QuantizedLinear& linear,
                           const ModuleRecord& record) {
  const bool has_bias = !FindBiases(source, linear).empty();
  if (has_bias == record.parts.contains("bias")) return "";
  return has_bias ? "the source has a bias for this module, but the module has no such part"
                  : "the module has a bias part, but the source has no bias";
}

// Empty: the layout takes the module as the model has it. Whether its plain weight lies [K, N] is
// what the manifest does not say.
std::string WhyLayoutIsWrong(const Checkpoint& source, const std::string& name,
                             const PackedModule& packed) {
  PackRequest request = packed.request();
  request.inputs_first = IsConv1d(source.config(), name);
  request.experts = IsExpert(name) ? std::max<uint64_t>(request.experts, 1) : 0;
  const Eligibility eligible = packed.layout().Takes(request);
  if (eligible.ok) return "";
  return fmt::format("layout {} does not take this module: {}", packed.layout().id,
                     eligible.reason);
}

// The module as it was packed, where that is not as it is stored; else null.
std::unique_ptr<QuantizedLinear> OtherView(const QuantizedLinear& linear,
                                           const ModuleRecord& record) {
  if (linear.scheme().code == CodeType::kBF16) return nullptr;
  if (record.scheme.code == CodeType::kBF16) return Dequantized(linear);
  const Layout* layout = FindLayout(record.layout);
  if (layout == nullptr || !layout->checkpoint || !linear.reordered()) return nullptr;
  return linear.InModelOrder();
}

}  // namespace

ExactnessCheck::ExactnessCheck(const PackedFolder& folder, const Checkpoint& source,
                               const QuantizedModel& model, const ModuleSample* sample,
                               Progress& progress)
    : folder_(folder),
      source_(source),
      model_(model),
      sample_(sample),
      progress_(progress),
      tensors_(folder.manifest().tensors.size()),
      hashes_(source) {
  for (const auto& [name, record] : folder.manifest().modules) {
    Module& module = modules_.emplace_back();
    module.name = &name;
    module.record = &record;
    module.linear = model.Find(name);
  }
  AssignSourceTensors();
}

// Threads set the hashes, so each is set in one place. Modules may share a source tensor, such as
// stacked experts that were packed one by one: it is hashed with the first of them.
void ExactnessCheck::AssignSourceTensors() {
  std::vector<bool> assigned(source_.tensors().size());
  const auto assign = [&](const StoredTensor& tensor) {
    const size_t number = NumberOf(source_, tensor);
    if (assigned[number]) return false;
    assigned[number] = true;
    return true;
  };
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const StoredTensor* stored = source_.Find(folder_.manifest().tensors[i].tensor);
    tensors_[i].sets_hash = stored != nullptr && assign(*stored);
  }
  for (Module& module : modules_) {
    if (module.linear == nullptr || !InSample(sample_, *module.name)) continue;
    module.hashed_with_it =
        ReplacedTensors(source_, *module.linear, module.record->parts.contains("bias"));
    std::erase_if(module.hashed_with_it,
                  [&](const StoredTensor* tensor) { return !assign(*tensor); });
  }
}

uint64_t ExactnessCheck::bytes() const {
  if (sample_ == nullptr) return measured_->ShareOf(2 * source_.total_bytes());
  uint64_t bytes = 0;
  for (const auto& linear : model_.modules) {
    if (sample_->contains(std::string(linear->module()))) bytes += 2 * linear->source_bytes();
  }
  return measured_->ShareOf(bytes);
}

Status ExactnessCheck::CompareRecords() {
  for (Module& module : modules_) PREPACK_TRY(CompareRecord(module));
  return {};
}

Status ExactnessCheck::CompareRecord(Module& module) {
  if (module.result.state == LevelState::kFailed) return {};  // known
  const std::string& name = *module.name;
  const ModuleRecord& record = *module.record;
  const QuantizedLinear* linear = module.linear;
  if (linear == nullptr) {
    module.result.FailModule(name, "the source has no such quantized module");
    return {};
  }
  const std::unique_ptr<QuantizedLinear> other = OtherView(*linear, record);
  Scheme scheme = (other ? *other : *linear).scheme();
  if (MayBeChosen(*linear, record.scheme.activations)) {
    scheme.activations = record.scheme.activations;
  }
  if (std::string why = WhyNotTheSame(*linear, scheme, record); !why.empty()) {
    module.result.FailModule(name, std::move(why));
    return {};
  }
  if (record.source_activations != SourceActivations(record.scheme, linear->scheme().activations)) {
    module.result.FailModule(name,
                             "the manifest says something else of the activations in the source");
    return {};
  }
  std::string why = WhyBiasIsWrong(source_, *linear, record);
  if (why.empty()) {
    PREPACK_TRY_ASSIGN(const PackedModule packed, PackedModule::Open(folder_, name, record));
    why = WhyLayoutIsWrong(source_, name, packed);
  }
  module.comparable = why.empty();
  if (module.comparable) return {};
  module.result.FailModule(name, std::move(why));
  if (InSample(sample_, name)) module.exact = false;
  return {};
}

bool ExactnessCheck::SourceHoldsModules() const {
  return std::ranges::all_of(modules_, [&](const Module& module) {
    return module.comparable || module.exact || !InSample(sample_, *module.name);
  });
}

void ExactnessCheck::MapSource(size_t index) const {
  const QuantizedLinear* linear = modules_[index].linear;
  // A model can have a hundred thousand small modules, each of which is in a window or two anyway.
  if (linear == nullptr || linear->source_bytes() <= kWindowBytes) return;
  for (const StoredTensor* tensor : ReplacedTensors(source_, *linear, /*with_bias=*/false)) {
    source_.MapTogether(*tensor);
  }
}

Status ExactnessCheck::CompareModule(size_t index, unsigned threads) {
  Module& module = modules_[index];
  const std::string& name = *module.name;
  if (!InSample(sample_, name)) return {};
  if (module.comparable) {
    PREPACK_TRY_ASSIGN(const PackedModule packed,
                       PackedModule::Open(folder_, name, *module.record));
    const std::unique_ptr<QuantizedLinear> other = OtherView(*module.linear, *module.record);
    const std::string unit = UnitOfModule(name);
    PREPACK_TRY_ASSIGN(
        const ModuleDifferences differences,
        measured_->Of<ModuleDifferences>({.kind = "exact", .name = name, .unit = unit}, [&] {
          return prepack::CompareModule(packed, source_, *module.linear,
                                        other ? *other : *module.linear, threads, progress_);
        }));
    module.exact = differences.none();
    module.max_scale_difference = differences.max_scale_difference;
    if (!differences.none()) module.result.FailModule(name, differences.Describe());
    module.rounded_scales = differences.rounded_scales;
  }
  if (module.linear != nullptr) {
    PREPACK_TRY_ASSIGN(const WeightSize size, MeasureWeightSize(*module.linear, *measured_));
    module.weight_size = size.value;
  }
  return HashSource(module);
}

WeightSizes ExactnessCheck::weight_sizes() const {
  WeightSizes sizes;
  for (const Module& module : modules_) {
    if (module.weight_size) sizes.emplace(module.linear, *module.weight_size);
  }
  return sizes;
}

// The bytes have just been read: they are hashed where they lie in the page cache.
Status ExactnessCheck::HashSource(const Module& module) {
  const std::string unit = UnitOfModule(*module.name);
  for (const StoredTensor* tensor : module.hashed_with_it) {
    PREPACK_TRY_ASSIGN(
        const Hash128 hash,
        measured_->Of<Hash128>({.kind = "source", .name = tensor->name, .unit = unit},
                               [&] { return StreamedHash().Finish(RangeOf(source_, *tensor)); }));
    hashes_.Set(*tensor, hash);
    if (measured_->Measures(unit)) progress_.Add(tensor->bytes);
  }
  return {};
}

Status ExactnessCheck::CompareTensor(size_t index) {
  const TensorRecord& record = folder_.manifest().tensors[index];
  Tensor& tensor = tensors_[index];
  const StoredTensor* stored = FindSame(source_, record, tensor.problem);
  if (stored == nullptr || sample_ != nullptr) return {};
  const std::string unit = UnitOfTensor(record.tensor);
  PREPACK_TRY_ASSIGN(
      PassedTensor passed,
      measured_->Of<PassedTensor>({.kind = "passed", .name = record.tensor, .unit = unit},
                                  [&] { return CompareBytes(record, *stored); }));
  tensor.problem = std::move(passed.problem);
  if (tensor.sets_hash && passed.source_hash) hashes_.Set(*stored, *passed.source_hash);
  return {};
}

// Compares all bytes, and hashes the source's bytes while they are in the cache.
Result<PassedTensor> ExactnessCheck::CompareBytes(const TensorRecord& record,
                                                  const StoredTensor& stored) {
  PassedTensor tensor;
  constexpr uint64_t kChunkBytes = kHashedPieceBytes;
  PageBuffer buffer(2 * std::min(kChunkBytes, stored.bytes));
  Xxh3Hasher hasher;
  for (uint64_t offset = 0; offset < stored.bytes; offset += kChunkBytes) {
    if (CancellationRequested()) return Interrupted(source_.Where(stored));
    const uint64_t count = std::min(kChunkBytes, stored.bytes - offset);
    const std::span<std::byte> found = std::span(buffer).first(count);
    const std::span<std::byte> expected = std::span(buffer).last(count);
    PREPACK_TRY(folder_.Read(record, offset, found));
    PREPACK_TRY(source_.Read(stored, offset, expected));
    hasher.Update(expected);
    progress_.Add(2 * count);
    if (!tensor.problem.empty() || SameBytes(found, expected)) continue;
    const auto [at, unused] = std::ranges::mismatch(found, expected);
    tensor.problem = fmt::format("differs from the source at byte {}",
                                 offset + static_cast<uint64_t>(at - found.begin()));
  }
  tensor.source_hash = hasher.Digest();
  return tensor;
}

std::optional<Problem> ExactnessCheck::FirstProblem() const {
  for (const Module& module : modules_) {
    if (!module.result.problems.empty()) return module.result.problems.front();
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i].problem.empty()) continue;
    return Problem{"", fmt::format("tensor {}", folder_.manifest().tensors[i].tensor),
                   tensors_[i].problem};
  }
  return std::nullopt;
}

Result<LevelResult> ExactnessCheck::Finish(unsigned threads, ModuleFigures& figures) {
  const Manifest& manifest = folder_.manifest();
  LevelResult result{.state = LevelState::kPassed};
  size_t skipped = 0;
  for (Module& module : modules_) {
    const std::string& name = *module.name;
    ModuleVerification& figure = figures.at(name);
    figure.exact = module.exact;
    figure.max_scale_difference = module.max_scale_difference;
    if (module.rounded_scales.value_or(module.record->rounded_scales) !=
        module.record->rounded_scales) {
      module.result.FailModule(
          name, fmt::format("the manifest has another number of rounded scales (found {}, "
                            "expected {})",
                            module.record->rounded_scales, *module.rounded_scales));
    }
    result.Add(std::move(module.result));
    skipped += InSample(sample_, name) ? 0U : 1U;
  }
  if (sample_ != nullptr) {
    result.notes.push_back(
        {"", "sample",
         fmt::format("compared by shape, scheme and rounding only: {} of {} modules", skipped,
                     modules_.size())});
  }
  uint64_t bytes = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const TensorRecord& record = manifest.tensors[i];
    bytes += record.bytes();
    if (tensors_[i].problem.empty()) continue;
    result.Fail(fmt::format("tensor {}", record.tensor), std::move(tensors_[i].problem));
  }
  if (sample_ != nullptr) {
    result.notes.push_back(
        {"", "sample",
         fmt::format(
             "compared by dtype and shape only: {} tensors that pass through, {} bytes in all",
             tensors_.size(), bytes)});
  }
  PREPACK_TRY(CheckProvenance(folder_, source_, model_, sample_, *measured_, threads, progress_,
                              hashes_, result));
  SetModuleStates(Level::kExactness, result, sample_, figures);
  return result;
}

}  // namespace prepack
