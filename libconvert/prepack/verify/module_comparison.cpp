// Codes are unpacked and compared tile by tile, scales and zero points strip by strip, small parts
// as a whole.

#include "prepack/verify/module_comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "prepack/base/checked.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/function_ref.h"
#include "prepack/base/memory.h"
#include "prepack/base/parallel.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/layouts/parameters.h"
#include "prepack/layouts/placement.h"
#include "prepack/model/panel_shape.h"
#include "prepack/model/scheme.h"
#include "prepack/packed/small_parts.h"

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
  TileParameters of_tile;
  std::vector<int32_t> sums;
};

// Counts what differs in a panel.
void ComparePanel(CodeType code, const PanelRange& range, std::span<const std::byte> found_codes,
                  std::span<const std::byte> expected_codes, ModuleDifferences& differences) {
  if (SameBytes(found_codes, expected_codes)) return;
  ForPanelRows(found_codes, range.rows, [&](uint64_t row, std::span<const std::byte> codes) {
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

bool IsTile(std::span<const std::byte> repacked, const VisitedTile& packed) {
  return SameBytes(repacked.first(packed.codes.size()), packed.codes) &&
         SameBytes(repacked.subspan(packed.codes.size()), packed.sums);
}

// The comparison of one module, cut into tiles and strips.
class ModuleComparison {
 public:
  ModuleComparison(const PackedModule& packed, const Checkpoint& source,
                   const QuantizedLinear& weights)
      : packed_(packed),
        source_(source),
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
  uint64_t TileBytes(size_t index) const {
    return PlacedBytes(layout_.place_weight(request_, grid_.At(index)));
  }
  size_t strips() const { return static_cast<size_t>(CeilDiv(weights_.n(), strip_rows_)); }

  // Before tiles are compared.
  Status ReadBias(const QuantizedLinear& linear) {
    if (!layout_.HoldsParameters()) return {};
    return ReadHeldBias(source_, linear, layout_, packed_.parts(), bias_);
  }
  Status CompareTile(size_t index, Buffers& buffers, ModuleDifferences& differences) const;
  Status CompareStrip(size_t index, Buffers& buffers, ModuleDifferences& differences) const;
  Status CompareSmallParts(const QuantizedLinear& linear, Buffers& buffers,
                           ModuleDifferences& differences) const;

 private:
  Status CompareMapped(const PanelRange& tile, const VisitedTile& packed, Buffers& buffers,
                       ModuleDifferences& differences) const;
  // Calls `work` with the codes of the source; they are there during the call only.
  Status UseExpectedCodes(const PanelRange& panel, Buffers& buffers,
                          FunctionRef<void(std::span<const std::byte> codes)> work) const;
  Status CompareSums(uint64_t n0, uint64_t rows, Buffers& buffers,
                     ModuleDifferences& differences) const;

  const PackedModule& packed_;
  const Checkpoint& source_;
  const Layout& layout_;
  const PackRequest& request_;
  const QuantizedLinear& weights_;
  TileShape shape_;
  TileGrid grid_;
  uint64_t strip_rows_;
  DType scale_dtype_;
  bool rounds_scales_;
  GlobalScale global_;       // of the source
  std::vector<float> bias_;  // where the weight holds it
};

// Codes are unpacked and compared. Whatever else the weight holds is compared by packing the source
// again: padding and sums mean nothing beyond that.
Status ModuleComparison::CompareTile(size_t index, Buffers& buffers,
                                     ModuleDifferences& differences) const {
  const PanelRange tile = grid_.At(index);
  PREPACK_TRY(ReadTileParameters(layout_, weights_, tile, buffers.of_tile));
  Status status;
  PREPACK_TRY(packed_.VisitTile(tile, buffers.packed, [&](const VisitedTile& packed) {
    status = CompareMapped(tile, packed, buffers, differences);
  }));
  return status;
}

// While codes of the source are visited, the tile, which may be mapped as well, is not touched: a
// visit only survives the loss of its own file.
Status ModuleComparison::CompareMapped(const PanelRange& tile, const VisitedTile& packed,
                                       Buffers& buffers, ModuleDifferences& differences) const {
  const CodeType code = weights_.scheme().code;
  const size_t bytes = packed.codes.size() + packed.sums.size();
  buffers.repacked.resize(layout_.weight_has_extras ? bytes : 0);
  const uint64_t codes_before = differences.codes;
  PREPACK_TRY(ForPanels(tile, shape_, [&](const PanelRange& panel) -> Status {
    buffers.found_codes.resize(PanelBytes(code, panel));
    packed_.UnpackPanel(tile, panel, packed.codes, buffers.found_codes);
    return UseExpectedCodes(panel, buffers, [&](std::span<const std::byte> expected) {
      ComparePanel(code, panel, buffers.found_codes, expected, differences);
      if (!layout_.weight_has_extras) return;
      layout_.pack_codes({.request = request_,
                          .tile = tile,
                          .panel = panel,
                          .zero_points = buffers.of_tile.zero_points,
                          .scales = buffers.of_tile.scales,
                          .bias = bias_.empty() ? std::span<const float>()
                                                : std::span(bias_).subspan(tile.n0, tile.rows)},
                         expected, buffers.repacked);
    });
  }));
  if (layout_.weight_has_extras && differences.codes == codes_before &&
      !IsTile(buffers.repacked, packed)) {
    ++differences.extra_tiles;
  }
  return {};
}

Status ModuleComparison::UseExpectedCodes(
    const PanelRange& panel, Buffers& buffers,
    FunctionRef<void(std::span<const std::byte> codes)> work) const {
  const uint64_t bytes = PanelBytes(weights_.scheme().code, panel);
  const auto found = weights_.FindCodes(panel);
  const StoredTensor* tensor = found ? source_.Find(found->tensor) : nullptr;
  if (tensor == nullptr) {
    buffers.expected_codes.resize(bytes);
    PREPACK_TRY(weights_.ReadCodes(panel, buffers.expected_codes));
    work(buffers.expected_codes);
    return {};
  }
  return source_.Visit(*tensor, found->offset, bytes, [&](const std::byte* codes) {
    work({codes, bytes});
  });
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
  PREPACK_TRY(packed_.ReadScales(n0, rows, buffers.packed, buffers.found_scales));
  PREPACK_TRY(weights_.ReadScales(n0, rows, buffers.expected_scales));
  PREPACK_TRY(packed_.ReadZeroPoints(n0, rows, buffers.packed, buffers.found_zeros));
  PREPACK_TRY(weights_.ReadZeroPoints(n0, rows, buffers.expected_zeros));

  const bool two_levels = layout_.scales.two_levels;
  for (size_t i = 0; i < count; ++i) {
    const float found = buffers.found_scales[i];
    const float expected = buffers.expected_scales[i];
    const float rounded = two_levels       ? PackedScale(layout_, global_, expected)
                          : rounds_scales_ ? RoundTo(scale_dtype_, expected)
                                           : expected;
    if (rounds_scales_ && rounded != expected) ++differences.rounded_scales;
    if (std::bit_cast<uint32_t>(found) != std::bit_cast<uint32_t>(rounded)) ++differences.scales;
    if (found != expected && expected != 0) {
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

Status ModuleComparison::CompareSmallParts(const QuantizedLinear& linear, Buffers& buffers,
                                           ModuleDifferences& differences) const {
  // Only the manifest says which parts there are: if an order is lost or made up, all remaining
  // parts still equal the source.
  const bool reordered = layout_.checkpoint ? linear.reordered() : weights_.reordered();
  if (request_.reordered != reordered) {
    differences.parts.emplace_back("input_order");
    return {};
  }
  for (const PartSpec& part : packed_.parts()) {
    if (!IsSmallPart(part.role)) continue;
    PREPACK_TRY(SmallPartBytes(source_, linear, layout_, part, buffers.repacked));
    PREPACK_TRY(packed_.ReadWholePart(part.role, buffers.packed));
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
  if (layout.HoldsParameters()) {
    most += tile.rows * weights.groups() * sizeof(float) + weights.n() * sizeof(float);
  }
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
  ModuleComparison comparison(packed, source, weights);
  PREPACK_TRY(comparison.ReadBias(linear));
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
        progress.Add(comparison.TileBytes(index));
        return compared;
      });
  ModuleDifferences all;
  if (status.ok()) status = comparison.CompareSmallParts(linear, buffers.front(), all);
  if (!status.ok()) return status;
  for (const ModuleDifferences& differences : of_worker) all.Merge(differences);
  return all;
}

}  // namespace prepack
