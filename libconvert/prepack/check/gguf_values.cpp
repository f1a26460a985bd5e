// The numbers in the tensors of a GGUF model: floats, and the scales of blocks.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "prepack/base/checked.h"
#include "prepack/base/parallel.h"
#include "prepack/check/check.h"
#include "prepack/check/gguf_check.h"
#include "prepack/check/plain_statistics.h"

namespace prepack {
namespace {

using gguf::GgmlType;
using gguf::GgmlTypeInfo;
using gguf::ScaleKind;

constexpr uint64_t kGgufPieceBytes = uint64_t{16} << 20;  // about
constexpr uint32_t kF16Exponents = 32;

// What a part of a tensor holds.
struct BlockCounts {
  uint64_t not_finite = 0;     // floats, or scales and minima
  uint64_t first_offset = 0;   // of the block or float that has the first, in the tensor
  uint64_t longest_empty = 0;  // bytes of zero blocks in a row
  uint64_t empty_offset = 0;   // where these begin
  // Of the first scale of each block, by its exponent in f16; zeros are not counted.
  std::array<uint64_t, kF16Exponents> exponents = {};
};

struct GgufPiece {
  size_t tensor = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  BlockCounts counts = {};
};

std::optional<DType> FloatOf(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
      return DType::kF32;
    case GgmlType::kF16:
      return DType::kF16;
    case GgmlType::kBF16:
      return DType::kBF16;
    case GgmlType::kF64:
      return DType::kF64;
    default:
      return std::nullopt;
  }
}

uint32_t ExponentOfF16(const uint8_t* scale) {
  return scale[1] >> 2 & 31U;
}

bool IsFiniteScale(ScaleKind kind, const uint8_t* scale) {
  if (kind == ScaleKind::kF16) return ExponentOfF16(scale) != 31;
  if (kind == ScaleKind::kE8M0) return scale[0] != 0xFF;
  return (scale[0] & 0x7FU) != 0x7F;
}

void CountFloats(DType dtype, std::span<const std::byte> bytes, uint64_t offset,
                 BlockCounts& counts) {
  counts.not_finite = CountNotFinite(dtype, bytes);
  if (counts.not_finite == 0) return;
  const size_t size = DTypeBits(dtype) / 8;
  size_t at = 0;
  while (CountNotFinite(dtype, bytes.subspan(at, size)) == 0) at += size;
  counts.first_offset = offset + at;
}

void CountScales(const GgmlTypeInfo& info, const uint8_t* block, uint64_t offset,
                 BlockCounts& counts) {
  for (const uint32_t at : info.scale_offsets) {
    if (IsFiniteScale(info.scale_kind, block + at)) continue;
    if (counts.not_finite++ == 0) counts.first_offset = offset;
  }
  if (info.scale_kind != ScaleKind::kF16) return;
  const uint8_t* scale = block + info.scale_offsets.front();
  if ((scale[0] | (scale[1] & 0x7FU)) != 0) ++counts.exponents[ExponentOfF16(scale)];
}

void CountBlocks(const GgmlTypeInfo& info, std::span<const std::byte> bytes, uint64_t offset,
                 BlockCounts& counts) {
  uint64_t empty = 0;
  for (uint64_t at = 0; at < bytes.size(); at += info.bytes) {
    const std::span<const std::byte> block = bytes.subspan(at, info.bytes);
    CountScales(info, U8(block.data()), offset + at, counts);
    const bool is_empty = std::ranges::all_of(block, [](std::byte b) { return b == std::byte{}; });
    empty = is_empty ? empty + info.bytes : 0;
    if (empty <= counts.longest_empty) continue;
    counts.longest_empty = empty;
    counts.empty_offset = offset + at + info.bytes - empty;
  }
}

class GgufValues {
 public:
  explicit GgufValues(const gguf::Model& model) : model_(model) {
    for (size_t i = 0; i < model.tensors().size(); ++i) {
      const gguf::Tensor& tensor = model.tensors()[i];
      const GgmlTypeInfo& info = InfoOf(tensor.type);
      if (!FloatOf(tensor.type) && info.scale_kind == ScaleKind::kNone) continue;
      const uint64_t step = kGgufPieceBytes / info.bytes * info.bytes;
      for (uint64_t offset = 0; offset < tensor.bytes; offset += step) {
        pieces_.push_back(
            {.tensor = i, .offset = offset, .bytes = std::min(step, tensor.bytes - offset)});
      }
    }
  }

  Status Read(unsigned threads, Progress& progress) {
    progress.Begin("checking values", model_.total_bytes());
    return ParallelFor(pieces_.size(), threads, [&](size_t index, unsigned) -> Status {
      if (CancellationRequested()) return Interrupted(model_.path().string());
      GgufPiece& piece = pieces_[index];
      const gguf::Tensor& tensor = model_.tensors()[piece.tensor];
      progress.BeginItem(tensor.name);
      PREPACK_TRY(model_.Visit(tensor, piece.offset, piece.bytes, [&](const std::byte* bytes) {
        CountPiece(tensor, {bytes, static_cast<size_t>(piece.bytes)}, piece);
      }));
      progress.Add(piece.bytes);
      return {};
    });
  }

  void Judge(std::vector<Finding>& findings) const {
    for (size_t begin = 0; begin < pieces_.size();) {
      size_t end = begin;
      BlockCounts all;
      for (; end < pieces_.size() && pieces_[end].tensor == pieces_[begin].tensor; ++end) {
        Merge(pieces_[end].counts, all);
      }
      JudgeTensor(model_.tensors()[pieces_[begin].tensor], all, findings);
      begin = end;
    }
  }

 private:
  static void CountPiece(const gguf::Tensor& tensor, std::span<const std::byte> bytes,
                         GgufPiece& piece) {
    if (const std::optional<DType> dtype = FloatOf(tensor.type)) {
      CountFloats(*dtype, bytes, piece.offset, piece.counts);
    } else {
      CountBlocks(InfoOf(tensor.type), bytes, piece.offset, piece.counts);
    }
  }

  static void Merge(const BlockCounts& piece, BlockCounts& all) {
    if (all.not_finite == 0) all.first_offset = piece.first_offset;
    all.not_finite += piece.not_finite;
    if (piece.longest_empty > all.longest_empty) {
      all.longest_empty = piece.longest_empty;
      all.empty_offset = piece.empty_offset;
    }
    for (size_t i = 0; i < kF16Exponents; ++i) all.exponents[i] += piece.exponents[i];
  }

  void JudgeTensor(const gguf::Tensor& tensor, const BlockCounts& counts,
                   std::vector<Finding>& findings) const {
    const GgmlTypeInfo& info = InfoOf(tensor.type);
    const std::string where = model_.Where(tensor);
    if (counts.not_finite != 0 && FloatOf(tensor.type)) {
      findings.push_back(MakeFinding(
          "value-not-finite", where,
          fmt::format("{} of {} values are NaN or infinite, the first at byte {} of the tensor",
                      counts.not_finite, tensor.bytes / info.bytes, counts.first_offset)));
    } else if (counts.not_finite != 0) {
      findings.push_back(MakeFinding(
          "scale-not-finite", where,
          fmt::format("{} scales of {} are NaN or infinite, the first in the block at byte {} of "
                      "the tensor",
                      counts.not_finite, info.name, counts.first_offset)));
    }
    if (counts.longest_empty >= kEmptyBytes) {
      findings.push_back(MakeFinding("blocks-empty", where,
                                     fmt::format("{} bytes of zero from byte {} of the tensor on",
                                                 counts.longest_empty, counts.empty_offset)));
    }
    JudgeScales(where, counts, findings);
  }

  static void JudgeScales(const std::string& where, const BlockCounts& counts,
                          std::vector<Finding>& findings) {
    uint64_t scales = 0;
    for (const uint64_t count : counts.exponents) scales += count;
    uint32_t median = 0;
    for (uint64_t below = 0; median < kF16Exponents; ++median) {
      below += counts.exponents[median];
      if (2 * below > scales) break;
    }
    uint64_t large = 0;
    for (uint32_t i = median + kScaleDoublings; i < kF16Exponents - 1; ++i) {
      large += counts.exponents[i];
    }
    if (large == 0) return;
    findings.push_back(MakeFinding(
        "block-scale-large", where,
        fmt::format("{} of {} scales are about {} times the median of the tensor, or more", large,
                    scales, 1U << kScaleDoublings)));
  }

  const gguf::Model& model_;
  std::vector<GgufPiece> pieces_;  // ascending by tensor and offset
};

}  // namespace

Status CheckGgufValues(const gguf::Model& model, unsigned threads, Progress& progress,
                       std::vector<Finding>& findings) {
  GgufValues values(model);
  PREPACK_TRY(values.Read(threads, progress));
  values.Judge(findings);
  return {};
}

}  // namespace prepack
