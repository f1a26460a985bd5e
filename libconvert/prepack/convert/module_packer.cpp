// Packs the tiles and strips of one module: reads a panel, hands it to the layout, and sends the
// packed runs to their places in the shard.

#include "prepack/convert/module_packer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include "prepack/base/float_convert.h"
#include "prepack/base/status.h"
#include "prepack/layouts/parameters.h"
#include "prepack/layouts/placement.h"
#include "prepack/model/stacked_linear.h"
#include "prepack/packed/small_parts.h"

namespace prepack {
namespace {

Status WritePiece(SafetensorsWriter& shard, size_t index, const Placement& placement,
                  std::span<const std::byte> bytes) {
  return ForPieces(placement, [&](uint64_t offset, uint64_t count) {
    Status status = shard.Write(index, offset, bytes.first(count));
    bytes = bytes.subspan(count);
    return status;
  });
}

// Tiles that are one piece come in order. Of others, the hash takes those runs that happen to.
Status Offer(const Placement& placement, std::span<const std::byte> bytes, StreamedHash& hash) {
  return ForPieces(placement, [&](uint64_t offset, uint64_t count) {
    hash.Offer(offset, bytes.first(count));
    bytes = bytes.subspan(count);
    return Status();
  });
}

}  // namespace

Status WriteBatch::Add(SafetensorsWriter& shard, size_t index, const Placement& placement,
                       PageBuffer& bytes) {
  if (shard_ != &shard) {
    PREPACK_TRY(Flush());
    shard_ = &shard;
  }
  std::unique_lock turn(shard.turn(), std::defer_lock);
  if (bytes.size() > kMaxWaitingBytes || count_ == kMaxWaitingPieces) turn.lock();
  if (turn.owns_lock() || turn.try_lock()) {
    PREPACK_TRY(WriteWaiting());
    return WritePiece(shard, index, placement, bytes);
  }
  if (count_ == pieces_.size()) pieces_.emplace_back();
  Piece& piece = pieces_[count_++];
  piece.index = index;
  piece.placement = placement;
  std::swap(piece.bytes, bytes);
  return {};
}

Status WriteBatch::Flush() {
  if (count_ == 0) return {};
  const std::lock_guard turn(shard_->turn());
  return WriteWaiting();
}

Status WriteBatch::WriteWaiting() {
  Status status;
  for (size_t i = 0; i < count_ && status.ok(); ++i) {
    status = WritePiece(*shard_, pieces_[i].index, pieces_[i].placement, pieces_[i].bytes);
  }
  count_ = 0;
  return status;
}

namespace {

// Counts the scales that become others under a global scale of the other convention.
uint64_t CountOther(const Layout& layout, const GlobalScale& global,
                    std::span<const float> scales) {
  uint64_t other = 0;
  for (const float scale : scales) {
    other += PackedScale(layout, global, scale) != scale ? 1 : 0;
  }
  return other;
}

// Counts the scales that `value` cannot hold exactly. A loop that knows the dtype becomes vector
// code.
uint64_t CountRounded(DType value, std::span<const float> scales) {
  uint64_t rounded = 0;
  if (value == DType::kBF16) {
    for (const float scale : scales) rounded += RoundTo(DType::kBF16, scale) != scale ? 1 : 0;
  } else {
    for (const float scale : scales) rounded += RoundTo(value, scale) != scale ? 1 : 0;
  }
  return rounded;
}

// The place of the first such byte, or half of a byte, the low half first.
std::optional<size_t> FindByte(std::span<const std::byte> codes, uint8_t byte) {
  const void* found = std::memchr(codes.data(), byte, codes.size());
  if (found == nullptr) return std::nullopt;
  return static_cast<size_t>(static_cast<const std::byte*>(found) - codes.data());
}

std::optional<size_t> FindNibble(std::span<const std::byte> codes, uint8_t nibble) {
  constexpr uint64_t kOnes = 0x1111111111111111;
  size_t i = 0;
  for (; i + sizeof(uint64_t) <= codes.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, &codes[i], sizeof word);
    word ^= kOnes * nibble;
    // Not zero where a nibble of the word is; the lowest such bit is at one that is.
    if (((word - kOnes) & ~word & (kOnes << 3)) != 0) break;
  }
  for (; i < codes.size(); ++i) {
    const auto byte = std::to_integer<uint8_t>(codes[i]);
    if ((byte & 0x0F) == nibble) return 2 * i;
    if (byte >> 4 == nibble) return 2 * i + 1;
  }
  return std::nullopt;
}

// The first code of the panel that the kernel misreads.
std::optional<size_t> FindMisread(const PackJob& job, const Layout& layout,
                                  std::span<const std::byte> codes) {
  if (!layout.misread_code.has_value() || codes.empty()) return std::nullopt;
  const int code = layout.misread_code->code;
  const Scheme& scheme = job.request.scheme;
  if (!IsNibble(scheme.code)) return FindByte(codes, static_cast<uint8_t>(code));
  return FindNibble(codes, static_cast<uint8_t>(code + ZeroOfSymmetric(scheme)));
}

std::string_view NameOf(const StoredTensor* tensor) {
  return tensor->name;
}

}  // namespace

ModulePacker::ModulePacker(const Checkpoint& checkpoint, const ModulePlan& module,
                           const OutputUnit& output, std::vector<SafetensorsWriter>& writers)
    : checkpoint_(checkpoint),
      module_(module),
      output_(output),
      writers_(writers),
      shape_(TileShapeFor(module.weights(), module.chosen->cut(module.request))),
      grid_(module.request.n, module.request.k, shape_),
      strip_rows_(StripRows(*module.chosen, module.request)),
      bias_(std::make_unique<Bias>()),
      rounded_scales_(std::make_unique<std::atomic<uint64_t>>(0)) {
  for (const QuantizedLinear* member : MembersOf(module.weights())) FindCodesInSource(*member);
  // Experts that are stored in one tensor share it.
  std::ranges::sort(codes_in_source_, {}, NameOf);
  codes_in_source_.erase(std::unique(codes_in_source_.begin(), codes_in_source_.end()),
                         codes_in_source_.end());
}

void ModulePacker::FindCodesInSource(const QuantizedLinear& linear) {
  const auto found = linear.FindCodes({.n0 = 0,
                                       .rows = std::min(shape_.panel_rows, linear.n()),
                                       .k0 = 0,
                                       .cols = shape_.panel_cols});
  if (found.has_value()) codes_in_source_.push_back(checkpoint_.Find(found->tensor));
}

size_t ModulePacker::strips() const {
  return static_cast<size_t>(CeilDiv(module_.request.n, strip_rows_));
}

// If the source holds the codes in the wanted form, they are packed from its mapping, which saves a
// copy. They are hashed first, in order, and are therefore in the cache when they are packed.
Status ModulePacker::UseCodes(const PanelRange& panel, PageBuffer& buffer, UnitHashes* hashes,
                              CodesUser use) const {
  const QuantizedLinear& weights = module_.weights();
  const uint64_t bytes = PanelBytes(weights.scheme().code, panel);
  const auto found = codes_in_source_.empty() ? std::nullopt : weights.FindCodes(panel);
  const auto tensor =
      std::ranges::lower_bound(codes_in_source_, found ? found->tensor : "", {}, NameOf);
  if (!found || tensor == codes_in_source_.end() || (*tensor)->name != found->tensor) {
    buffer.resize(bytes);
    Status status = weights.ReadCodes(panel, buffer);
    if (status.ok()) use(buffer);
    return status;
  }
  const auto visit = [&](const std::byte* codes) {
    const std::span<const std::byte> seen(codes, bytes);
    if (hashes != nullptr) hashes->OfferSource(*tensor, found->offset, seen);
    use(seen);
  };
  return checkpoint_.Visit(**tensor, found->offset, bytes, visit);
}

Status ModulePacker::PackPanel(const PackJob& job, PanelBuffers& buffers,
                               UnitHashes* hashes) const {
  const QuantizedLinear& weights = module_.weights();
  const Layout& layout = *module_.chosen;
  if (layout.pack_columns != nullptr && weights.HasColumns(job.panel)) {
    buffers.panel.resize(PanelBytes(weights.scheme().code, job.panel));
    Status status = weights.ReadColumns(job.panel, buffers.panel);
    if (status.ok()) layout.pack_columns(job, buffers.panel, buffers.packed);
    return status;
  }
  std::optional<size_t> misread;
  PREPACK_TRY(UseCodes(job.panel, buffers.panel, hashes, [&](std::span<const std::byte> codes) {
    misread = FindMisread(job, layout, codes);
    layout.pack_codes(job, codes, buffers.packed);
  }));
  if (!misread.has_value()) return {};
  const MisreadCode& rule = *layout.misread_code;
  return Unsupported(fmt::format("module {}", module_.linear->module()),
                     fmt::format("the kernel of {} reads weight ({}, {}) {}", layout.id,
                                 job.panel.n0 + *misread / job.panel.cols,
                                 job.panel.k0 + *misread % job.panel.cols, rule.how))
      .Found(fmt::format("code {}", rule.code))
      .Expected(std::string(rule.expected))
      .Hint("Quantize the model again without that code, or serve it with another runtime");
}

Status ModulePacker::PackTile(size_t index, PanelBuffers& buffers, UnitHashes* hashes) const {
  const QuantizedLinear& weights = module_.weights();
  const PanelRange tile = grid_.At(index);
  const Placement placement = module_.chosen->place_weight(module_.request, tile);
  buffers.packed.resize(PlacedBytes(placement));
  PREPACK_TRY(ReadTileParameters(*module_.chosen, weights, tile, buffers.of_tile));
  std::span<const float> bias;
  if (module_.chosen->HoldsParameters()) {
    PREPACK_TRY(CheckHeldScales(tile, buffers));
    PREPACK_TRY_ASSIGN(bias, HeldBias());
    if (!bias.empty()) bias = bias.subspan(tile.n0, tile.rows);
  }
  PREPACK_TRY(ForPanels(tile, shape_, [&](const PanelRange& panel) {
    const PackJob job = {.request = module_.request,
                         .tile = tile,
                         .panel = panel,
                         .zero_points = buffers.of_tile.zero_points,
                         .scales = buffers.of_tile.scales,
                         .bias = bias};
    return PackPanel(job, buffers, hashes);
  }));
  return WritePacked(PartRole::kWeight, placement, buffers, hashes);
}

Status ModulePacker::PackStrip(size_t index, PanelBuffers& buffers) const {
  const uint64_t begin = index * strip_rows_;
  const uint64_t count = std::min(strip_rows_, module_.request.n - begin);
  return ForExpertRows(module_.request, begin, count, [&](uint64_t n0, uint64_t rows) -> Status {
    PREPACK_TRY(PackScales(n0, rows, buffers));
    PREPACK_TRY(PackZeroPoints(n0, rows, buffers));
    return HasPart(PartRole::kWeightSum) ? PackWeightSums(n0, rows, buffers) : Status();
  });
}

// Few scales are beyond the limits, if any: the codes of each are read again.
Status ModulePacker::CheckScaleLimits(uint64_t n0, PanelBuffers& buffers) const {
  const ScaleLimits& limits = module_.chosen->scale_limits;
  if (limits.misreads == nullptr) return {};
  const QuantizedLinear& weights = module_.weights();
  const uint64_t group_size = weights.scheme().group_size;
  for (size_t i = 0; i < buffers.scales.size(); ++i) {
    const float scale = buffers.scales[i];
    if (scale >= limits.least && scale <= limits.most) continue;
    const uint64_t n = n0 + i / weights.groups();
    const uint64_t k0 = i % weights.groups() * group_size;
    const PanelRange group{
        .n0 = n, .rows = 1, .k0 = k0, .cols = std::min(group_size, weights.k() - k0)};
    buffers.panel.resize(PanelBytes(weights.scheme().code, group));
    PREPACK_TRY(weights.ReadCodes(group, buffers.panel));
    for (uint64_t k = 0; k < group.cols; ++k) {
      const uint8_t code = std::to_integer<uint8_t>(buffers.panel[k / 2] >> (k % 2 * 4)) & 15;
      if (!limits.misreads(scale, code)) continue;
      return Unsupported(fmt::format("module {}", module_.linear->module()),
                         fmt::format("the kernel of {} reads weight ({}, {}) as another number",
                                     module_.chosen->id, n, k0 + k))
          .Found(fmt::format("scale {}, code {}", scale, code))
          .Expected(fmt::format("a scale from {} to {}", limits.least, limits.most))
          .Hint(
              "Quantize the layer again, or serve the checkpoint with a runtime that reads such "
              "scales");
    }
  }
  return {};
}

Status ModulePacker::PackScales(uint64_t n0, uint64_t rows, PanelBuffers& buffers) const {
  buffers.scales.resize(rows * module_.weights().groups());
  Status status = module_.weights().ReadScales(n0, rows, buffers.scales);
  if (!status.ok() || !module_.chosen->HasScales()) return status;

  // Tiles of the weight hold them then.
  if (module_.chosen->HoldsParameters()) return {};
  PREPACK_TRY(CheckScaleLimits(n0, buffers));
  const Placement placement =
      PlaceParameters(*module_.chosen, module_.request, PartRole::kScale, n0, rows);
  buffers.packed.resize(PlacedBytes(placement));
  PREPACK_TRY(PackAndCount(n0, rows, buffers.scales, buffers.packed));
  return WritePacked(PartRole::kScale, placement, buffers);
}

Status ModulePacker::PackAndCount(uint64_t n0, uint64_t rows, std::span<const float> scales,
                                  std::span<std::byte> packed) const {
  const GlobalScale global = module_.linear->global_scale().value_or(GlobalScale{});
  Status status =
      prepack::PackScales(*module_.chosen, module_.request, rows, scales, packed, global);
  if (!status.ok()) {
    return std::move(status).In(
        fmt::format("module {}: output channels from {}", module_.linear->module(), n0));
  }
  const DType value = module_.chosen->scales.value.Of(module_.request);
  if (module_.chosen->scales.two_levels) {
    *rounded_scales_ += CountOther(*module_.chosen, global, scales);
  } else if (value != DType::kF32 && value != module_.weights().stored_scale_dtype()) {
    *rounded_scales_ += CountRounded(value, scales);
  }
  return {};
}

// Packs the scales of a tile by themselves, which finds those that do not fit.
Status ModulePacker::CheckHeldScales(const PanelRange& tile, PanelBuffers& buffers) const {
  const std::span<const float> scales = buffers.of_tile.scales;
  buffers.panel.resize(scales.size_bytes());
  return PackAndCount(tile.n0, tile.rows, scales, buffers.panel);
}

// That of the whole module, which the first tile reads.
Result<std::span<const float>> ModulePacker::HeldBias() const {
  std::call_once(bias_->once, [&] {
    bias_->status =
        ReadHeldBias(checkpoint_, *module_.linear, *module_.chosen, module_.parts, bias_->values);
  });
  if (!bias_->status.ok()) return bias_->status;
  return std::span<const float>(bias_->values);
}

Status ModulePacker::PackZeroPoints(uint64_t n0, uint64_t rows, PanelBuffers& buffers) const {
  // Read even if the layout stores none, so that the reader checks that a symmetric checkpoint with
  // left-over zero points really is symmetric.
  buffers.zero_points.resize(rows * module_.weights().groups());
  Status status = module_.weights().ReadZeroPoints(n0, rows, buffers.zero_points);
  if (!status.ok() || !HasPart(PartRole::kZeroPoint)) return status;

  const Placement placement =
      PlaceParameters(*module_.chosen, module_.request, PartRole::kZeroPoint, n0, rows);
  buffers.packed.resize(PlacedBytes(placement));
  prepack::PackZeroPoints(*module_.chosen, module_.request, rows, buffers.zero_points,
                          buffers.packed);
  return WritePacked(PartRole::kZeroPoint, placement, buffers);
}

// After PackScales of the same rows.
Status ModulePacker::PackWeightSums(uint64_t n0, uint64_t rows, PanelBuffers& buffers) const {
  buffers.sums.resize(rows);
  PREPACK_TRY(SumSignedCodes(module_.weights(), n0, rows, buffers.panel, buffers.sums));
  buffers.packed.resize(rows * sizeof(float));
  const DType value = module_.chosen->scales.value.Of(module_.request);
  PackScaledSums(value, buffers.sums, buffers.scales, buffers.packed);
  return WritePacked(PartRole::kWeightSum,
                     {{.offset = n0 * sizeof(float), .bytes = rows * sizeof(float)}}, buffers);
}

Status ModulePacker::PackSmallParts(PanelBuffers& buffers) const {
  for (const PartSpec& part : module_.parts) {
    if (!IsSmallPart(part.role)) continue;
    PREPACK_TRY(
        SmallPartBytes(checkpoint_, *module_.linear, *module_.chosen, part, buffers.packed));
    PREPACK_TRY(WritePacked(part.role, {{.offset = 0, .bytes = buffers.packed.size()}}, buffers));
  }
  return {};
}

// Writes buffers.packed.
Status ModulePacker::WritePacked(PartRole role, const Placement& placement, PanelBuffers& buffers,
                                 UnitHashes* hashes) const {
  const auto part = std::ranges::find(module_.parts, role, &PartSpec::role);
  const auto number = static_cast<size_t>(part - module_.parts.begin());
  if (hashes != nullptr) PREPACK_TRY(Offer(placement, buffers.packed, hashes->of_outputs[number]));
  buffers.written += buffers.packed.size();
  const OutputSlot slot = output_.slots[number];
  return buffers.writes.Add(writers_[slot.shard], slot.index, placement, buffers.packed);
}

}  // namespace prepack
