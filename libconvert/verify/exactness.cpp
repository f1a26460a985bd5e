#include "verify/exactness.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "base/cancellation.h"
#include "base/checked.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "canonical/panel_shape.h"
#include "convert/module_packer.h"
#include "convert/output_config.h"
#include "convert/output_hash.h"
#include "convert/source_hash.h"
#include "layouts/scale_convert.h"

namespace prepack {
namespace {

// Differences between a packed module and its source; panels are merged in any order, so that the
// first difference is that with the smallest (n, k), whatever the timing.
struct Differences {
  uint64_t codes = 0;
  uint64_t zero_points = 0;
  uint64_t scales = 0;
  std::pair<uint64_t, uint64_t> first_code = {UINT64_MAX, UINT64_MAX};  // n, k
  unsigned first_found = 0;
  unsigned first_expected = 0;
  double max_scale_difference = 0;

  bool none() const { return codes == 0 && zero_points == 0 && scales == 0; }
  void Merge(const Differences& other);
};

void Differences::Merge(const Differences& other) {
  codes += other.codes;
  zero_points += other.zero_points;
  scales += other.scales;
  max_scale_difference = std::max(max_scale_difference, other.max_scale_difference);
  if (other.first_code < first_code) {
    first_code = other.first_code;
    first_found = other.first_found;
    first_expected = other.first_expected;
  }
}

struct Buffers {
  std::vector<std::byte> packed;
  std::vector<std::byte> found_codes;
  std::vector<std::byte> expected_codes;
  std::vector<float> found_scales;
  std::vector<float> expected_scales;
  std::vector<uint8_t> found_zeros;
  std::vector<uint8_t> expected_zeros;
};

// Counts what differs in a panel.
void ComparePanel(CodeType code, const PanelRange& range, const Buffers& buffers,
                  Differences& differences) {
  if (buffers.found_codes == buffers.expected_codes) return;
  for (uint64_t row = 0; row < range.rows; ++row) {
    for (uint64_t k = 0; k < range.cols; ++k) {
      const unsigned found = PanelCode(code, buffers.found_codes, range.cols, row, k);
      const unsigned expected = PanelCode(code, buffers.expected_codes, range.cols, row, k);
      if (found == expected) continue;
      ++differences.codes;
      const std::pair place = {range.n0 + row, range.k0 + k};
      if (place >= differences.first_code) continue;
      differences.first_code = place;
      differences.first_found = found;
      differences.first_expected = expected;
    }
  }
}

Status CompareCodes(const PackedModule& packed, const QuantizedLinear& source, uint64_t n0,
                    uint64_t rows, uint64_t cols, Buffers& buffers, Differences& differences) {
  const CodeType code = source.scheme().code;
  Status status = packed.ReadStrip(n0, rows, buffers.packed);
  for (uint64_t k0 = 0; k0 < source.k() && status.ok(); k0 += cols) {
    const PanelRange range{
        .n0 = n0, .rows = rows, .k0 = k0, .cols = std::min(cols, source.k() - k0)};
    buffers.found_codes.resize(PanelBytes(code, range));
    buffers.expected_codes.resize(PanelBytes(code, range));
    status = source.ReadCodes(range, buffers.expected_codes);
    if (!status.ok()) return status;
    packed.UnpackCodes({.rows = rows, .k0 = k0, .cols = range.cols}, buffers.packed,
                       buffers.found_codes);
    ComparePanel(code, range, buffers, differences);
  }
  return status;
}

Status CompareScales(const PackedModule& packed, const QuantizedLinear& source, uint64_t n0,
                     uint64_t rows, Buffers& buffers, Differences& differences) {
  const size_t count = rows * source.groups();
  buffers.found_scales.resize(count);
  buffers.expected_scales.resize(count);
  buffers.found_zeros.resize(count);
  buffers.expected_zeros.resize(count);
  Status status = packed.ReadScales(n0, rows, buffers.packed, buffers.found_scales);
  if (status.ok()) status = source.ReadScales(n0, rows, buffers.expected_scales);
  if (status.ok()) status = packed.ReadZeroPoints(n0, rows, buffers.packed, buffers.found_zeros);
  if (status.ok()) status = source.ReadZeroPoints(n0, rows, buffers.expected_zeros);
  if (!status.ok()) return status;

  const DType dtype = ScaleDType(packed.layout(), packed.request());
  for (size_t i = 0; i < count; ++i) {
    const float found = buffers.found_scales[i];
    const float expected = buffers.expected_scales[i];
    const float rounded = RoundScale(dtype, expected);
    if (std::bit_cast<uint32_t>(found) != std::bit_cast<uint32_t>(rounded)) ++differences.scales;
    if (expected != 0) {
      const double difference = std::abs((static_cast<double>(found) - expected) / expected);
      differences.max_scale_difference = std::max(differences.max_scale_difference, difference);
    }
    if (buffers.found_zeros[i] != buffers.expected_zeros[i]) ++differences.zero_points;
  }
  return {};
}

Result<Differences> CompareModule(const PackedModule& packed, const QuantizedLinear& source,
                                  unsigned threads, std::vector<Buffers>& buffers,
                                  Progress& progress) {
  const PanelShape panel = PanelShapeFor(source, packed.layout().rows_multiple);
  const uint64_t scale_rows = ScaleRows(packed.layout(), packed.request());
  const auto code_tasks = static_cast<size_t>(CeilDiv(source.n(), panel.rows));
  const auto scale_tasks = static_cast<size_t>(CeilDiv(source.n(), scale_rows));
  std::vector<Differences> of_worker(threads);
  Status status =
      ParallelFor(code_tasks + scale_tasks, threads, [&](size_t index, unsigned worker) -> Status {
        if (CancellationRequested()) return Interrupted(source.module());
        Differences differences;
        Status compared;
        if (index < code_tasks) {
          const uint64_t n0 = index * panel.rows;
          const uint64_t rows = std::min(panel.rows, source.n() - n0);
          compared =
              CompareCodes(packed, source, n0, rows, panel.cols, buffers[worker], differences);
          progress.Add(buffers[worker].packed.size());
        } else {
          const uint64_t n0 = (index - code_tasks) * scale_rows;
          const uint64_t rows = std::min(scale_rows, source.n() - n0);
          compared = CompareScales(packed, source, n0, rows, buffers[worker], differences);
        }
        of_worker[worker].Merge(differences);
        return compared;
      });
  if (!status.ok()) return status;
  Differences all;
  for (const Differences& differences : of_worker) all.Merge(differences);
  return all;
}

std::string Describe(const Differences& differences) {
  std::vector<std::string> texts;
  if (differences.codes != 0) {
    texts.push_back(fmt::format(
        "{} codes differ from the source, the first at output channel {}, input channel {} (found "
        "{}, expected {})",
        differences.codes, differences.first_code.first, differences.first_code.second,
        differences.first_found, differences.first_expected));
  }
  if (differences.zero_points != 0) {
    texts.push_back(fmt::format("{} zero points differ from the source", differences.zero_points));
  }
  if (differences.scales != 0) {
    texts.push_back(fmt::format(
        "{} scales differ from the source by more than the rounding that is named (largest {:.3g})",
        differences.scales, differences.max_scale_difference));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

// Compares a tensor that passed through with the source.
Status CompareTensor(const PackedFolder& folder, const TensorRecord& record,
                     const Checkpoint& source, Buffers& buffers, LevelResult& result) {
  constexpr uint64_t kChunkBytes = 1 << 20;
  const std::string where = fmt::format("tensor {}", record.tensor);
  const StoredTensor* tensor = source.Find(record.tensor);
  if (tensor == nullptr) {
    result.Fail(where, "the source has no such tensor");
    return {};
  }
  if (tensor->dtype != record.dtype || tensor->shape != record.shape) {
    result.Fail(where, "the source has it with another dtype or shape");
    return {};
  }
  for (uint64_t offset = 0; offset < tensor->bytes; offset += kChunkBytes) {
    const uint64_t count = std::min(kChunkBytes, tensor->bytes - offset);
    buffers.found_codes.resize(count);
    buffers.expected_codes.resize(count);
    Status status = folder.Read(record, offset, buffers.found_codes);
    if (status.ok()) status = source.Read(*tensor, offset, buffers.expected_codes);
    if (!status.ok()) return status;
    const auto [found, expected] =
        std::ranges::mismatch(buffers.found_codes, buffers.expected_codes);
    if (found != buffers.found_codes.end()) {
      result.Fail(where,
                  fmt::format("it differs from the source at byte {}",
                              offset + static_cast<uint64_t>(found - buffers.found_codes.begin())));
      return {};
    }
  }
  return {};
}

// The manifest must name this source, and the roundings that were made.
Status CheckProvenance(const Manifest& manifest, const Checkpoint& source,
                       const QuantizedModel& model, unsigned threads, Progress& progress,
                       LevelResult& result) {
  TensorHashes hashes;
  Status status = HashTensors(source, threads, progress, hashes);
  if (!status.ok()) return status;
  if (SourceFingerprint(source, hashes) != manifest.source_fingerprint) {
    result.Fail("source",
                fmt::format("it is not the one that the folder was made from "
                            "(fingerprint found {}, expected {})",
                            SourceFingerprint(source, hashes), manifest.source_fingerprint));
  }
  for (const auto& linear : model.modules) {
    const auto record = manifest.modules.find(linear->module());
    if (record == manifest.modules.end()) continue;
    const std::string where = fmt::format("module {}", linear->module());
    if (SourceHash(source, hashes, linear->source_tensors()) != record->second.source_xxh3_128) {
      result.Fail(where, "the manifest has another hash of its source tensors");
    }
    const auto scale = record->second.parts.find("weight_scale");
    if (record->second.stored_scale_dtype != linear->stored_scale_dtype() ||
        (scale != record->second.parts.end() &&
         record->second.scale_rounding !=
             ScaleRounding(linear->stored_scale_dtype(), scale->second.dtype))) {
      result.Fail(where, "the manifest names another rounding of its scales");
    }
  }
  return {};
}

// config.json must be what convert makes of the source's, and side files must be the source's.
Status CheckSideFiles(const PackedFolder& folder, const Checkpoint& source, Progress& progress,
                      LevelResult& result) {
  const std::string expected = OutputConfig(source.config(), folder.manifest()).dump(2) + "\n";
  const auto config = folder.manifest().files.find("config.json");
  if (config == folder.manifest().files.end() || config->second.xxh3_128 != Xxh3Hex(expected)) {
    result.Fail("config.json",
                "it is not the source's with the quantization_config of this folder");
  }
  for (const std::string& name : source.side_files()) {
    const Result<File> file = File::OpenForRead(source.path() / name);
    if (!file.ok()) return file.status();
    const Result<FileRecord> record = HashFile(*file, progress);
    if (!record.ok()) return record.status();
    const auto packed = folder.manifest().files.find(name);
    if (packed == folder.manifest().files.end() || packed->second.xxh3_128 != record->xxh3_128) {
      result.Fail(name, "it differs from the file of the source");
    }
  }
  return {};
}

// Every module and tensor of the source must be somewhere in the output.
void CheckNothingIsMissing(const Manifest& manifest, const Checkpoint& source,
                           const QuantizedModel& model, LevelResult& result) {
  std::set<std::string_view> accounted;
  for (const TensorRecord& tensor : manifest.tensors) accounted.insert(tensor.tensor);
  for (const auto& linear : model.modules) {
    if (!manifest.modules.contains(linear->module())) continue;
    for (const std::string& name : linear->source_tensors()) accounted.insert(name);
  }
  for (const auto& [name, tensor] : source.tensors()) {
    if (!accounted.contains(name)) {
      result.Fail(fmt::format("tensor {}", name), "the source has it, the packed folder does not");
    }
  }
}

}  // namespace

Result<LevelResult> CheckExactness(const PackedFolder& folder, const Checkpoint& source,
                                   const QuantizedModel& model, Isa isa, unsigned threads,
                                   Progress& progress,
                                   std::map<std::string, ModuleVerification>& figures) {
  LevelResult result{.state = LevelState::kPassed, .reason = "", .problems = {}};
  progress.Begin("exactness", 2 * source.total_bytes());  // compared, then hashed
  std::vector<Buffers> buffers(threads);
  for (const auto& [name, record] : folder.manifest().modules) {
    const std::string where = fmt::format("module {}", name);
    const QuantizedLinear* linear = model.Find(name);
    if (linear == nullptr) {
      result.Fail(where, "the source has no such quantized module");
      continue;
    }
    if (linear->n() != record.n || linear->k() != record.k || linear->scheme() != record.scheme) {
      result.Fail(where, "the source has another shape or scheme than the manifest");
      continue;
    }
    const Result<PackedModule> packed = PackedModule::Open(folder, name, record, isa);
    if (!packed.ok()) return packed.status();
    const Result<Differences> differences =
        CompareModule(*packed, *linear, threads, buffers, progress);
    if (!differences.ok()) return differences.status();
    ModuleVerification& figure = figures.at(name);
    figure.exact = differences->none();
    figure.max_scale_difference = differences->max_scale_difference;
    if (!differences->none()) result.Fail(where, Describe(*differences));
  }
  for (const TensorRecord& tensor : folder.manifest().tensors) {
    Status status = CompareTensor(folder, tensor, source, buffers.front(), result);
    if (!status.ok()) return status;
    progress.Add(tensor.bytes());
  }
  CheckNothingIsMissing(folder.manifest(), source, model, result);
  Status status = CheckProvenance(folder.manifest(), source, model, threads, progress, result);
  if (status.ok()) status = CheckSideFiles(folder, source, progress, result);
  if (!status.ok()) return status;
  return result;
}

}  // namespace prepack
