#include "verify/exactness.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/cancellation.h"
#include "base/hash.h"
#include "base/page_buffer.h"
#include "base/parallel.h"
#include "canonical/dequantized_linear.h"
#include "convert/scheme_choice.h"
#include "convert/small_parts.h"
#include "convert/source_hash.h"
#include "formats/conv1d.h"
#include "verify/module_exactness.h"
#include "verify/provenance.h"

namespace prepack {
namespace {

// A tensor that passed through, compared with the source.
struct Comparison {
  std::string problem;                 // empty: equal
  std::optional<Hash128> source_hash;  // of all bytes of the source's; none: not read to the end
};

// Compares dtype and shape; the tensor of the source, or null when they differ.
const StoredTensor* FindSame(const Checkpoint& source, const TensorRecord& record,
                             std::string& problem) {
  const StoredTensor* tensor = source.Find(record.tensor);
  if (tensor == nullptr) {
    problem = "the source has no such tensor";
    return nullptr;
  }
  if (tensor->dtype == record.dtype && tensor->shape == record.shape) return tensor;
  problem = "the source has it with another dtype or shape";
  return nullptr;
}

// Compares all bytes, and hashes those of the source while they are in the cache.
Status CompareBytes(const PackedFolder& folder, const TensorRecord& record,
                    const Checkpoint& source, const StoredTensor& tensor, Progress& progress,
                    Comparison& comparison) {
  constexpr uint64_t kChunkBytes = kHashedPieceBytes;
  progress.BeginItem(record.tensor);
  PageBuffer buffer(2 * std::min(kChunkBytes, tensor.bytes));
  Xxh3Hasher hasher;
  for (uint64_t offset = 0; offset < tensor.bytes; offset += kChunkBytes) {
    if (CancellationRequested()) return Interrupted(source.Where(tensor));
    const uint64_t count = std::min(kChunkBytes, tensor.bytes - offset);
    const std::span<std::byte> found = std::span(buffer).first(count);
    const std::span<std::byte> expected = std::span(buffer).last(count);
    Status status = folder.Read(record, offset, found);
    if (status.ok()) status = source.Read(tensor, offset, expected);
    if (!status.ok()) return status;
    hasher.Update(expected);
    progress.Add(2 * count);
    if (!comparison.problem.empty() || SameBytes(found, expected)) continue;
    const auto [at, unused] = std::ranges::mismatch(found, expected);
    comparison.problem = fmt::format("it differs from the source at byte {}",
                                     offset + static_cast<uint64_t>(at - found.begin()));
  }
  comparison.source_hash = hasher.Digest();
  return {};
}

// Compares the tensors that pass through; with a sample, their dtypes and shapes only.
Status CompareTensors(const PackedFolder& folder, const Checkpoint& source,
                      const ModuleSample* sample, unsigned threads, Progress& progress,
                      TensorHashes& hashes, LevelResult& result) {
  const std::vector<TensorRecord>& records = folder.manifest().tensors;
  std::vector<Comparison> comparisons(records.size());
  Status status = ParallelFor(records.size(), threads, [&](size_t index, unsigned) -> Status {
    const StoredTensor* tensor = FindSame(source, records[index], comparisons[index].problem);
    if (tensor == nullptr || sample != nullptr) return {};
    return CompareBytes(folder, records[index], source, *tensor, progress, comparisons[index]);
  });
  if (!status.ok()) return status;
  uint64_t bytes = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    Comparison& comparison = comparisons[i];
    bytes += records[i].bytes();
    if (!comparison.problem.empty()) {
      result.Fail(fmt::format("tensor {}", records[i].tensor), std::move(comparison.problem));
    }
    if (comparison.source_hash) {
      hashes.Set(*source.Find(records[i].tensor), *comparison.source_hash);
    }
  }
  if (sample != nullptr) {
    result.notes.push_back({"", "sample",
                            fmt::format("{} tensors that pass through, {} bytes in all, were "
                                        "compared by dtype and shape only",
                                        records.size(), bytes)});
  }
  return {};
}

// Can convert give the module such activations? The user chooses them with --scheme.
bool MayBeChosen(const QuantizedLinear& linear, const ActivationScheme& activations) {
  using enum WantedScheme;
  const auto wanted = {kAuto, kW4A16, kW4A8, kW8A8, kW8A16};
  return std::ranges::any_of(wanted, [&](WantedScheme scheme) {
    return ActivationsFor(linear.scheme(), scheme) == activations;
  });
}

// What the source has in the place of a packed module, against what the manifest says of it; empty:
// the same.
std::string WhyNotTheSame(const QuantizedLinear& linear, const Scheme& scheme,
                          const ModuleRecord& record) {
  if (linear.n() != record.n || linear.k() != record.k || scheme != record.scheme) {
    return "the source has another shape or scheme than the manifest";
  }
  std::vector<FusedMember> members;
  for (const QuantizedLinear* member : linear.members()) {
    members.push_back({member->module(), member->n()});
  }
  if (members != record.fused) {
    return "the manifest says that it is made of other layers than those of the source";
  }
  return "";
}

// Empty: it has a bias where the source has one.
std::string WhyBiasIsWrong(const Checkpoint& source, const QuantizedLinear& linear,
                           const ModuleRecord& record) {
  const bool has_bias = !FindBiases(source, linear).empty();
  if (has_bias == record.parts.contains("bias")) return "";
  return has_bias ? "the source gives it a bias, which is not one of its parts"
                  : "one of its parts is a bias, but the source gives it none";
}

// Empty: the layout takes the module as the model has it. Whether its plain weight lies [K, N] is
// what the manifest does not say.
std::string WhyLayoutIsWrong(const Checkpoint& source, const std::string& name,
                             const PackedModule& packed) {
  PackRequest request = packed.request();
  request.inputs_first = IsConv1d(source.config(), name);
  const Eligibility eligible = packed.layout().eligible(request);
  if (eligible.ok) return "";
  return fmt::format("layout {} takes no such module: {}", packed.layout().id, eligible.reason);
}

// Compares one module. `figure` says what was found; so does `result`, when something differs.
Status CompareWithSource(const PackedFolder& folder, const std::string& name,
                         const ModuleRecord& record, const Checkpoint& source,
                         const QuantizedModel& model, const ModuleSample* sample, Isa isa,
                         unsigned threads, Progress& progress, ModuleVerification& figure,
                         LevelResult& result) {
  const QuantizedLinear* linear = model.Find(name);
  if (linear == nullptr) {
    result.FailModule(name, "the source has no such quantized module");
    return {};
  }
  const std::unique_ptr<QuantizedLinear> dequantized =
      record.scheme.code == CodeType::kBF16 ? Dequantized(*linear) : nullptr;
  const QuantizedLinear& weights = dequantized ? *dequantized : *linear;
  Scheme scheme = weights.scheme();
  if (MayBeChosen(*linear, record.scheme.activations)) {
    scheme.activations = record.scheme.activations;
  }
  if (std::string why = WhyNotTheSame(*linear, scheme, record); !why.empty()) {
    result.FailModule(name, std::move(why));
    return {};
  }
  if (std::string why = WhyBiasIsWrong(source, *linear, record); !why.empty()) {
    result.FailModule(name, std::move(why));
    if (InSample(sample, name)) figure.exact = false;
    return {};
  }
  const Result<PackedModule> packed = PackedModule::Open(folder, name, record, isa);
  if (!packed.ok()) return packed.status();
  if (std::string why = WhyLayoutIsWrong(source, name, *packed); !why.empty()) {
    result.FailModule(name, std::move(why));
    if (InSample(sample, name)) figure.exact = false;
    return {};
  }
  if (!InSample(sample, name)) return {};
  progress.BeginItem(name);
  const Result<ModuleDifferences> differences =
      CompareModule(*packed, source, *linear, weights, isa, threads, progress);
  if (!differences.ok()) return differences.status();
  figure.exact = differences->none();
  figure.max_scale_difference = differences->max_scale_difference;
  if (!differences->none()) result.FailModule(name, differences->Describe());
  if (differences->rounded_scales != record.rounded_scales) {
    result.FailModule(name, fmt::format("the manifest has another number of rounded scales (found "
                                        "{}, expected {})",
                                        record.rounded_scales, differences->rounded_scales));
  }
  return {};
}

// Of the source that is compared, then hashed.
uint64_t BytesToRead(const Checkpoint& source, const QuantizedModel& model,
                     const ModuleSample* sample) {
  if (sample == nullptr) return 2 * source.total_bytes();
  uint64_t bytes = 0;
  for (const auto& linear : model.modules) {
    if (sample->contains(linear->module())) bytes += 2 * linear->source_bytes();
  }
  return bytes;
}

}  // namespace

Result<LevelResult> CheckExactness(const PackedFolder& folder, const Checkpoint& source,
                                   const QuantizedModel& model, const ModuleSample* sample, Isa isa,
                                   unsigned threads, Progress& progress, ModuleFigures& figures) {
  const Manifest& manifest = folder.manifest();
  LevelResult result{.state = LevelState::kPassed};
  progress.Begin("exactness", BytesToRead(source, model, sample));
  size_t skipped = 0;
  for (const auto& [name, record] : manifest.modules) {
    Status status = CompareWithSource(folder, name, record, source, model, sample, isa, threads,
                                      progress, figures.at(name), result);
    if (!status.ok()) return status;
    skipped += InSample(sample, name) ? 0U : 1U;
  }
  if (sample != nullptr) {
    result.notes.push_back({"", "sample",
                            fmt::format("{} of {} modules were compared by shape, scheme and "
                                        "rounding only",
                                        skipped, manifest.modules.size())});
  }
  TensorHashes hashes(source);
  Status status = CompareTensors(folder, source, sample, threads, progress, hashes, result);
  if (status.ok()) {
    status = CheckProvenance(folder, source, model, sample, threads, progress, hashes, result);
  }
  if (!status.ok()) return status;
  SetModuleStates(Level::kExactness, result, sample, figures);
  return result;
}

}  // namespace prepack
