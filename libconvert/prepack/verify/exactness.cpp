// The exactness level: every part of a packed module is unpacked and compared with the source, read
// by the same reader as in convert. This proves packing, but not reading: a mistake of the reader
// is on both sides. The GEMM level, which has its own decoder, is there to find that.

#include "prepack/verify/exactness.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/hash.h"
#include "prepack/base/memory.h"
#include "prepack/base/parallel.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/formats/stored_linear.h"
#include "prepack/layouts/parameters.h"
#include "prepack/layouts/placement.h"
#include "prepack/layouts/table.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/model/module_name.h"
#include "prepack/model/panel_shape.h"
#include "prepack/model/scheme.h"
#include "prepack/packed/small_parts.h"
#include "prepack/packed/source_identity.h"

namespace prepack {
namespace {

struct Buffers {
  PageBuffer packed;
  PageBuffer repacked;
  PageBuffer found_codes;
  PageBuffer expected_codes;
  std::vector<float> found_scales;
  std::vector<float> expected_scales;
  std::vector<uint8_t> found_zeros;
  std::vector<uint8_t> expected_zeros;
  std::vector<int32_t> sums;
};

// Counts what differs in a panel.
void ComparePanel(CodeType code, const PanelRange& range, const Buffers& buffers,
                  ModuleDifferences& differences) {
  if (SameBytes(buffers.found_codes, buffers.expected_codes)) return;
  const std::span<const std::byte> expected_codes = buffers.expected_codes;
  ForPanelRows(buffers.found_codes, range.rows,
               [&](uint64_t row, std::span<const std::byte> codes) {
                 const auto expected_row = expected_codes.subspan(row * codes.size(), codes.size());
                 for (uint64_t k = 0; k < range.cols; ++k) {
                   const unsigned found = PanelBits(code, codes, range.cols, 0, k);
                   const unsigned expected = PanelBits(code, expected_row, range.cols, 0, k);
                   if (found == expected) continue;
                   ++differences.codes;
                   const std::pair place = {range.n0 + row, range.k0 + k};
                   if (place >= differences.first_code) continue;
                   differences.first_code = place;
                   differences.first_found = found;
                   differences.first_expected = expected;
                 }
               });
}

// The comparison of one module, cut into tiles and strips.
class ModuleComparison {
 public:
  ModuleComparison(const PackedModule& packed, const QuantizedLinear& weights)
      : packed_(packed),
        layout_(packed.layout()),
        request_(packed.request()),
        weights_(weights),
        shape_(TileShapeFor(weights, layout_.cut(request_))),
        grid_(weights.n(), weights.k(), shape_),
        strip_rows_(StripRows(layout_, request_)),
        scale_dtype_(layout_.scales.value.Of(request_)),
        rounds_scales_(scale_dtype_ != DType::kF32 && scale_dtype_ != weights.stored_scale_dtype()),
        global_(weights.global_scale().value_or(GlobalScale{})) {}

  size_t tiles() const { return grid_.size(); }
  size_t strips() const { return static_cast<size_t>(CeilDiv(weights_.n(), strip_rows_)); }

  Status CompareTile(size_t index, Buffers& buffers, ModuleDifferences& differences) const;
  Status CompareStrip(size_t index, Buffers& buffers, ModuleDifferences& differences) const;
  Status CompareSmallParts(const Checkpoint& source, const QuantizedLinear& linear,
                           Buffers& buffers, ModuleDifferences& differences) const;

 private:
  Status CompareSums(uint64_t n0, uint64_t rows, Buffers& buffers,
                     ModuleDifferences& differences) const;

  const PackedModule& packed_;
  const Layout& layout_;
  const PackRequest& request_;
  const QuantizedLinear& weights_;
  TileShape shape_;
  TileGrid grid_;
  uint64_t strip_rows_;
  DType scale_dtype_;
  bool rounds_scales_;
  GlobalScale global_;  // of the source
};

// Codes are unpacked and compared. Whatever else the weight holds is compared by packing the source
// again: padding and sums mean nothing beyond that.
Status ModuleComparison::CompareTile(size_t index, Buffers& buffers,
                                     ModuleDifferences& differences) const {
  const CodeType code = weights_.scheme().code;
  const PanelRange tile = grid_.At(index);
  Status status = packed_.ReadTile(tile, buffers.packed);
  if (!status.ok()) return status;
  status = ReadZeroPointsForCodes(layout_, weights_, tile, buffers.expected_zeros);
  if (!status.ok()) return status;
  buffers.repacked.resize(layout_.weight_has_extras ? buffers.packed.size() : 0);
  const uint64_t codes_before = differences.codes;
  status = ForPanels(tile, shape_, [&](const PanelRange& panel) -> Status {
    buffers.found_codes.resize(PanelBytes(code, panel));
    buffers.expected_codes.resize(PanelBytes(code, panel));
    PREPACK_TRY(weights_.ReadCodes(panel, buffers.expected_codes));
    packed_.UnpackPanel(tile, panel, buffers.packed, buffers.found_codes);
    ComparePanel(code, panel, buffers, differences);
    if (!layout_.weight_has_extras) return {};
    layout_.pack_codes(
        {.request = request_, .tile = tile, .panel = panel, .zero_points = buffers.expected_zeros},
        buffers.expected_codes, buffers.repacked);
    return {};
  });
  if (layout_.weight_has_extras && differences.codes == codes_before &&
      !SameBytes(buffers.repacked, buffers.packed)) {
    ++differences.extra_tiles;
  }
  return status;
}

Status ModuleComparison::CompareStrip(size_t index, Buffers& buffers,
                                      ModuleDifferences& differences) const {
  const uint64_t n0 = index * strip_rows_;
  const uint64_t rows = std::min(strip_rows_, weights_.n() - n0);
  const size_t count = rows * weights_.groups();
  buffers.found_scales.resize(count);
  buffers.expected_scales.resize(count);
  buffers.found_zeros.resize(count);
  buffers.expected_zeros.resize(count);
  Status status = packed_.ReadScales(n0, rows, buffers.packed, buffers.found_scales);
  if (status.ok()) status = weights_.ReadScales(n0, rows, buffers.expected_scales);
  if (status.ok()) status = packed_.ReadZeroPoints(n0, rows, buffers.packed, buffers.found_zeros);
  if (status.ok()) status = weights_.ReadZeroPoints(n0, rows, buffers.expected_zeros);
  if (!status.ok()) return status;

  const bool two_levels = layout_.scales.two_levels;
  for (size_t i = 0; i < count; ++i) {
    const float found = buffers.found_scales[i];
    const float expected = buffers.expected_scales[i];
    const float rounded =
        two_levels ? PackedScale(layout_, global_, expected) : RoundTo(scale_dtype_, expected);
    if (rounds_scales_ && rounded != expected) ++differences.rounded_scales;
    if (std::bit_cast<uint32_t>(found) != std::bit_cast<uint32_t>(rounded)) ++differences.scales;
    if (expected != 0) {
      const double difference = std::abs((static_cast<double>(found) - expected) / expected);
      differences.max_scale_difference = std::max(differences.max_scale_difference, difference);
    }
    if (buffers.found_zeros[i] != buffers.expected_zeros[i]) ++differences.zero_points;
  }
  if (FindPart(packed_.parts(), PartRole::kWeightSum) == nullptr) return {};
  return CompareSums(n0, rows, buffers, differences);
}

Status ModuleComparison::CompareSums(uint64_t n0, uint64_t rows, Buffers& buffers,
                                     ModuleDifferences& differences) const {
  buffers.sums.resize(rows);
  PREPACK_TRY(SumSignedCodes(weights_, n0, rows, buffers.expected_codes, buffers.sums));
  buffers.repacked.resize(rows * sizeof(float));
  PackScaledSums(layout_.scales.value.Of(request_), buffers.sums, buffers.expected_scales,
                 buffers.repacked);
  buffers.packed.resize(buffers.repacked.size());
  PREPACK_TRY(packed_.ReadPart(PartRole::kWeightSum, n0 * sizeof(float), buffers.packed));
  for (size_t row = 0; row < rows; ++row) {
    const auto at = static_cast<std::ptrdiff_t>(row * sizeof(float));
    if (!std::equal(buffers.packed.begin() + at, buffers.packed.begin() + at + sizeof(float),
                    buffers.repacked.begin() + at)) {
      ++differences.weight_sums;
    }
  }
  return {};
}

Status ModuleComparison::CompareSmallParts(const Checkpoint& source, const QuantizedLinear& linear,
                                           Buffers& buffers, ModuleDifferences& differences) const {
  // Only the manifest says which parts there are: if an order is lost or made up, all remaining
  // parts still equal the source.
  const bool reordered = layout_.checkpoint ? linear.reordered() : weights_.reordered();
  if (request_.reordered != reordered) {
    differences.parts.emplace_back("input_order");
    return {};
  }
  for (const PartSpec& part : packed_.parts()) {
    if (!IsSmallPart(part.role)) continue;
    Status status = SmallPartBytes(source, linear, layout_, part, buffers.repacked);
    if (status.ok()) status = packed_.ReadWholePart(part.role, buffers.packed);
    if (!status.ok()) return status;
    if (!SameBytes(buffers.packed, buffers.repacked)) differences.parts.emplace_back(part.name);
  }
  return {};
}

}  // namespace

bool ModuleDifferences::none() const {
  return codes == 0 && zero_points == 0 && scales == 0 && extra_tiles == 0 && weight_sums == 0 &&
         parts.empty();
}

void ModuleDifferences::Merge(const ModuleDifferences& other) {
  codes += other.codes;
  zero_points += other.zero_points;
  scales += other.scales;
  extra_tiles += other.extra_tiles;
  weight_sums += other.weight_sums;
  rounded_scales += other.rounded_scales;
  parts.insert(parts.end(), other.parts.begin(), other.parts.end());
  max_scale_difference = std::max(max_scale_difference, other.max_scale_difference);
  if (other.first_code < first_code) {
    first_code = other.first_code;
    first_found = other.first_found;
    first_expected = other.first_expected;
  }
}

std::string ModuleDifferences::Describe() const {
  std::vector<std::string> texts;
  if (codes != 0) {
    texts.push_back(fmt::format(
        "{} codes differ from the source, the first at output channel {}, input channel {} (found "
        "{}, expected {})",
        codes, first_code.first, first_code.second, first_found, first_expected));
  }
  if (extra_tiles != 0) {
    texts.push_back(fmt::format(
        "all codes match the source, but {} tiles have wrong sums or padding", extra_tiles));
  }
  if (zero_points != 0) {
    texts.push_back(fmt::format("{} zero points differ from the source", zero_points));
  }
  if (scales != 0) {
    texts.push_back(fmt::format(
        "{} scales differ from the source by more than the declared rounding (largest {:.3g})",
        scales, max_scale_difference));
  }
  if (weight_sums != 0) {
    texts.push_back(fmt::format("{} sums of weights differ from the source's", weight_sums));
  }
  for (const std::string& part : parts) {
    texts.push_back(fmt::format("part {} is not what the source yields", part));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

uint64_t MemoryOfComparison(const PackedModule& packed, const QuantizedLinear& weights) {
  const Layout& layout = packed.layout();
  const PackRequest& request = packed.request();
  const CodeType code = request.scheme.code;
  const TileShape shape = TileShapeFor(weights, layout.cut(request));
  const PanelRange tile = TileGrid(weights.n(), weights.k(), shape).At(0);
  const uint64_t panel_rows = std::min(shape.panel_rows, tile.rows);
  const uint64_t panel = panel_rows * PanelRowBytes(code, shape.panel_cols);
  const uint64_t bytes = PlacedBytes(layout.place_weight(request, tile));
  // Found and expected, and the words that the latter are taken out of.
  uint64_t most =
      (layout.weight_has_extras ? 2 : 1) * bytes + 3 * panel + tile.rows * weights.groups();
  if (weights.reordered()) most += panel_rows * PanelRowBytes(code, weights.k()) + 16 * weights.k();
  if (code == CodeType::kBF16) most += panel_rows * weights.k() * (sizeof(float) + 1);
  const uint64_t strip = std::min(StripRows(layout, request), weights.n()) * weights.groups();
  most += 3 * strip * (sizeof(float) + sizeof(uint8_t));
  if (FindPart(packed.parts(), PartRole::kWeightSum) != nullptr) most += kPanelBytes + weights.k();
  for (const PartSpec& part : packed.parts()) {
    if (!IsSmallPart(part.role)) continue;
    most += 2 * TensorBytes(part.dtype, part.shape).value_or(0);
  }
  return most;
}

Result<ModuleDifferences> CompareModule(const PackedModule& packed, const Checkpoint& source,
                                        const QuantizedLinear& linear,
                                        const QuantizedLinear& weights, unsigned threads,
                                        Progress& progress) {
  const ModuleComparison comparison(packed, weights);
  const size_t tiles = comparison.tiles();
  std::vector<Buffers> buffers(threads);
  std::vector<ModuleDifferences> of_worker(threads);
  Status status = ParallelFor(
      tiles + comparison.strips(), threads, [&](size_t index, unsigned worker) -> Status {
        if (CancellationRequested()) return Interrupted(linear.module());
        Buffers& scratch = buffers[worker];
        if (index >= tiles) {
          return comparison.CompareStrip(index - tiles, scratch, of_worker[worker]);
        }
        Status compared = comparison.CompareTile(index, scratch, of_worker[worker]);
        progress.Add(scratch.packed.size());
        return compared;
      });
  ModuleDifferences all;
  if (status.ok()) status = comparison.CompareSmallParts(source, linear, buffers.front(), all);
  if (!status.ok()) return status;
  for (const ModuleDifferences& differences : of_worker) all.Merge(differences);
  return all;
}

namespace {

// A tensor that passed through, compared with the source.
struct Comparison {
  std::string problem;                 // empty: equal
  std::optional<Hash128> source_hash;  // of all bytes of the source's; none: not read to the end
};

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

// Compares all bytes, and hashes the source's bytes while they are in the cache.
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
    comparison.problem = fmt::format("differs from the source at byte {}",
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
  PREPACK_TRY(ParallelFor(records.size(), threads, [&](size_t index, unsigned) -> Status {
    const StoredTensor* tensor = FindSame(source, records[index], comparisons[index].problem);
    if (tensor == nullptr || sample != nullptr) return {};
    return CompareBytes(folder, records[index], source, *tensor, progress, comparisons[index]);
  }));
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
    result.notes.push_back(
        {"", "sample",
         fmt::format(
             "compared by dtype and shape only: {} tensors that pass through, {} bytes in all",
             records.size(), bytes)});
  }
  return {};
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
  std::vector<FusedMember> members;
  for (const QuantizedLinear* member : linear.members()) {
    members.push_back({member->module(), member->n()});
  }
  if (members != record.fused || linear.stacked_experts() != record.experts) {
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

// Compares one module. `figure` says what was found; so does `result`, when something differs.
Status CompareWithSource(const PackedFolder& folder, const std::string& name,
                         const ModuleRecord& record, const Checkpoint& source,
                         const QuantizedModel& model, const ModuleSample* sample, unsigned threads,
                         Progress& progress, ModuleVerification& figure, LevelResult& result) {
  const QuantizedLinear* linear = model.Find(name);
  if (linear == nullptr) {
    result.FailModule(name, "the source has no such quantized module");
    return {};
  }
  const std::unique_ptr<QuantizedLinear> other = OtherView(*linear, record);
  const QuantizedLinear& weights = other ? *other : *linear;
  Scheme scheme = weights.scheme();
  if (MayBeChosen(*linear, record.scheme.activations)) {
    scheme.activations = record.scheme.activations;
  }
  if (std::string why = WhyNotTheSame(*linear, scheme, record); !why.empty()) {
    result.FailModule(name, std::move(why));
    return {};
  }
  if (record.source_activations != SourceActivations(record.scheme, linear->scheme().activations)) {
    result.FailModule(name, "the manifest says something else of the activations in the source");
    return {};
  }
  if (std::string why = WhyBiasIsWrong(source, *linear, record); !why.empty()) {
    result.FailModule(name, std::move(why));
    if (InSample(sample, name)) figure.exact = false;
    return {};
  }
  PREPACK_TRY_ASSIGN(const PackedModule packed, PackedModule::Open(folder, name, record));
  if (std::string why = WhyLayoutIsWrong(source, name, packed); !why.empty()) {
    result.FailModule(name, std::move(why));
    if (InSample(sample, name)) figure.exact = false;
    return {};
  }
  if (!InSample(sample, name)) return {};
  progress.BeginItem(name);
  PREPACK_TRY_ASSIGN(const ModuleDifferences differences,
                     CompareModule(packed, source, *linear, weights, threads, progress));
  figure.exact = differences.none();
  figure.max_scale_difference = differences.max_scale_difference;
  if (!differences.none()) result.FailModule(name, differences.Describe());
  if (differences.rounded_scales != record.rounded_scales) {
    result.FailModule(name, fmt::format("the manifest has another number of rounded scales (found "
                                        "{}, expected {})",
                                        record.rounded_scales, differences.rounded_scales));
  }
  return {};
}

// How much of the source is read to be compared, and then to be hashed.
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
                                   const QuantizedModel& model, const ModuleSample* sample,
                                   unsigned threads, Progress& progress, ModuleFigures& figures) {
  const Manifest& manifest = folder.manifest();
  LevelResult result{.state = LevelState::kPassed};
  progress.Begin("exactness", BytesToRead(source, model, sample));
  size_t skipped = 0;
  for (const auto& [name, record] : manifest.modules) {
    PREPACK_TRY(CompareWithSource(folder, name, record, source, model, sample, threads, progress,
                                  figures.at(name), result));
    skipped += InSample(sample, name) ? 0U : 1U;
  }
  if (sample != nullptr) {
    result.notes.push_back(
        {"", "sample",
         fmt::format("compared by shape, scheme and rounding only: {} of {} modules", skipped,
                     manifest.modules.size())});
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
