#include "prepack/layouts/stored_codes.h"

#include <cstring>

#include "prepack/base/checked.h"
#include "prepack/base/memory.h"
#include "prepack/kernels/codes.h"
#include "prepack/kernels/kernels.h"
#include "prepack/kernels/memory.h"
#include "prepack/kernels/unit_transpose.h"
#include "prepack/model/panel.h"

namespace prepack {
namespace {

bool IsWholeBits(uint32_t bits) {
  return bits == 4 || bits == 8;
}

// Codes of 4 or 8 bits: the bytes of a panel, filled up to words.
void StoreWhole(CodeType type, const std::byte* codes, uint64_t count, std::byte* words) {
  const size_t bytes = PanelRowBytes(type, count);
  XorCopy({codes, bytes}, SignMask(type), {words, bytes});
  const size_t padded = CeilDiv(bytes, 4) * 4;
  if (padded != bytes) std::memset(words + bytes, 0, padded - bytes);
}

void PackDense(uint32_t bits, CodeType type, const std::byte* codes, uint64_t count,
               std::byte* stream) {
  if (IsNibble(type)) return PackFromNibbles(bits, U8(codes), count, U8(stream));
  PackFromBytes(bits, U8(codes), count, U8(stream));
}

}  // namespace

void StoreCodes(const WordForm& form, CodeType type, const std::byte* codes, uint64_t count,
                std::byte* words) {
  if (IsWholeBits(form.bits)) return StoreWhole(type, codes, count, words);
  const size_t dense = DenseBytes(form.bits, count);
  if (!form.word_aligned || 32 % form.bits == 0) {
    PackDense(form.bits, type, codes, count, words);
    std::memset(words + dense, 0, form.Words(count) * 4 - dense);
    return;
  }
  Scratch<std::byte> stream(dense);
  PackDense(form.bits, type, codes, count, stream.data());
  DenseToWords(form.bits, U8(stream.data()), count, U8(words));
}

void LoadCodes(const WordForm& form, CodeType type, const std::byte* words, uint64_t count,
               std::byte* codes) {
  if (IsWholeBits(form.bits)) {
    const size_t bytes = PanelRowBytes(type, count);
    XorCopy({words, bytes}, SignMask(type), {codes, bytes});
    if (IsNibble(type) && count % 2 != 0) codes[bytes - 1] &= std::byte{0x0F};
    return;
  }
  const uint64_t word_count = form.Words(count);
  const bool aligned = form.word_aligned && 32 % form.bits != 0;
  Scratch<std::byte> dense(aligned ? DenseBytes(form.bits, word_count * (32 / form.bits)) : 0);
  if (aligned) {
    WordsToDense(form.bits, U8(words), word_count, U8(dense.data()));
    words = dense.data();
  }
  if (IsNibble(type)) {
    UnpackToNibbles(form.bits, U8(words), count, U8(codes));
  } else {
    UnpackToBytes(form.bits, U8(words), count, U8(codes));
  }
}

void StoreZeros(const WordForm& form, const uint8_t* zero_points, uint64_t count,
                std::byte* words) {
  const size_t dense = DenseBytes(form.bits, count);
  if (form.word_aligned && 32 % form.bits != 0) {
    Scratch<uint8_t> stream(dense);
    PackFromBytes(form.bits, zero_points, count, stream.data());
    return DenseToWords(form.bits, stream.data(), count, U8(words));
  }
  PackFromBytes(form.bits, zero_points, count, U8(words));
  std::memset(words + dense, 0, form.Words(count) * 4 - dense);
}

void LoadZeros(const WordForm& form, const std::byte* words, uint64_t count, uint8_t* zero_points) {
  const uint32_t one = (1U << form.bits) - 1;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t bit = form.BitOf(i);
    uint32_t field = std::to_integer<uint32_t>(words[bit / 8]);
    if (bit % 8 + form.bits > 8) field |= std::to_integer<uint32_t>(words[bit / 8 + 1]) << 8;
    zero_points[i] = static_cast<uint8_t>(field >> bit % 8 & one);
  }
}

void ZeroColumns(const PackRequest& request, uint64_t rows, std::span<const uint8_t> zero_points,
                 uint8_t offset, std::span<uint8_t> columns) {
  const uint64_t groups = request.groups();
  TransposeUnits(1)(std::as_bytes(zero_points).data(), groups, rows, groups,
                    std::as_writable_bytes(columns).data(), rows);
  if (offset == 0) return;
  for (uint8_t& zero : columns) zero = static_cast<uint8_t>(zero + offset);
}

void ZeroRows(const PackRequest& request, uint64_t rows, std::span<const uint8_t> columns,
              uint8_t offset, std::span<uint8_t> zero_points) {
  const uint64_t groups = request.groups();
  TransposeUnits(1)(std::as_bytes(columns).data(), rows, groups, rows,
                    std::as_writable_bytes(zero_points).data(), groups);
  if (offset == 0) return;
  for (uint8_t& zero : zero_points) zero = static_cast<uint8_t>(zero - offset);
}

}  // namespace prepack
