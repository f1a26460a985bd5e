#pragma once

// A quantized module whose codes are stored output channel by output channel, each row in its own
// words or bytes: all of compressed-tensors, quant_method fp8 and the dialects of FP4. Drawings of
// the bytes are in the headers of those formats.
//
// For codes of 4 and 8 bits a stored row already is a row of a panel (byte m holds code 2m in its
// low half and 2m + 1 in its high half), so reading copies.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "prepack/formats/rows/row_checks.h"
#include "prepack/formats/stored_linear.h"

namespace prepack {

enum class RowCodes : uint8_t {
  kBytes,        // I8 (two's complement) or F8_E4M3 [N, K], one code per byte
  kDense,        // I32 [N, ⌈K·b/32⌉], code k in bits [k·b, k·b + b) of the row, + 2^(b-1)
  kWordAligned,  // I32 [N, ⌈K/f⌉], f = ⌊32/b⌋ codes per word, + 2^(b-1)
  kNibbles,      // U8 [N, K/2], two codes of FP4 per byte, the even input channel in the low half
};

enum class RowZeroPoints : uint8_t {
  kNone,      // no tensor: 0 throughout, in the signed domain
  kPacked,    // I32 [words(N), columns], packed down the rows like the codes, + 2^(b-1)
  kUnpacked,  // I8, shaped like the scales, signed
};

// Words of 32 bits for `count` codes of `bits` bits; for 1, 2, 4 and 8 bits both ways agree.
uint64_t RowWords(RowCodes codes, uint32_t bits, uint64_t count);

// Where the numbers of a module are. Each tensor may hold the matrices of several experts, one
// after the other.
struct RowTensors {
  const StoredTensor* codes = nullptr;
  const StoredTensor* scale = nullptr;       // see Granularity
  const StoredTensor* zero_point = nullptr;  // nullptr for kNone
  uint64_t zero_point_columns = 0;  // of kPacked: at least G, what lies behind is not looked at
  uint64_t expert = 0;              // the matrix that is meant
  RowCodes stored = RowCodes::kBytes;
  RowZeroPoints zero_points = RowZeroPoints::kNone;
  ScaleForm scale_form = ScaleForm::kFactor;
};

// A module whose tensors have been checked: dtypes, and shapes against n, k and scheme.
struct RowModule : RowTensors {
  std::string module;
  Scheme scheme;
  uint64_t n = 0;
  uint64_t k = 0;
  uint64_t experts = 1;        // matrices in each tensor
  uint64_t scale_sharers = 0;  // matrices whose scales share a tensor; 0: as many
  // The first scale of this matrix, where the scales of more matrices lie in one tensor than codes
  // do; else it follows from `expert`.
  std::optional<uint64_t> first_scale;
  const StoredTensor* global_scale_tensor = nullptr;
  std::optional<GlobalScale> global_scale;  // where the scales are quantized, too
  const StoredTensor* order = nullptr;  // the group of each input channel, where it holds an order
  std::optional<InputQuantization> input;
  std::optional<GlobalScale> input_global_scale;
  const StoredTensor* stacked_bias = nullptr;  // [experts, N]
  // What else belongs to the module: weight_shape, weight_g_idx, input_scale.
  std::vector<const StoredTensor*> side_tensors;

  // That of the expert that is meant.
  std::optional<StackedBias> BiasRow() const {
    if (stacked_bias == nullptr) return std::nullopt;
    return StackedBias{.tensor = stacked_bias->name, .row = expert, .rows = experts, .channels = n};
  }
};

class RowLinear final : public StoredLinear {
 public:
  // Refers to the checkpoint, which must live longer.
  RowLinear(const Checkpoint& checkpoint, const RowModule& parts);
  // The other one in the order of the file.
  struct InStoredOrder {
    const RowLinear& linear;
  };
  explicit RowLinear(const InStoredOrder& other);

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override;
  std::optional<CodesInSource> FindCodes(const PanelRange& range) const override;
  // A zero scale is accepted where every weight of its group is zero whatever the scale.
  // Where a symmetric module has zero points left over, they are checked here: callers need not ask
  // for those.
  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override;
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override;
  Result<uint64_t> CountStrayBits() const override;
  std::unique_ptr<QuantizedLinear> InModelOrder() const override;
  StoredBits WhereCode(uint64_t n, uint64_t k) const override;
  StoredBits WhereScale(uint64_t n, uint64_t g) const override;
  StoredBits WhereZeroPoint(uint64_t n, uint64_t g) const override;
  PanelRange CodesNear(uint64_t byte) const override;

 private:
  // Codes in the order of the file, whatever the order is.
  Status ReadStoredCodes(const PanelRange& range, std::span<std::byte> out) const;
  Status ReadBytes(const PanelRange& range, std::span<std::byte> out) const;
  Status ReadBytesAsNibbles(const PanelRange& range, std::span<std::byte> out) const;
  Status ReadStoredBytes(const PanelRange& range, std::span<std::byte> out) const;
  // Where the panel begins among stored bytes.
  uint64_t FirstByte(const PanelRange& range) const {
    return (parts_.expert * n_ + range.n0) * k_ + range.k0;
  }
  // What makes stored signed bytes unsigned codes, and the largest one.
  uint8_t CodeOffset() const { return static_cast<uint8_t>(1U << (scheme_->bits - 1)); }
  uint8_t MaxCode() const { return static_cast<uint8_t>((1U << scheme_->bits) - 1); }
  Status ReadWholeWords(const PanelRange& range, std::span<std::byte> out) const;
  Status ReadOddBits(const PanelRange& range, std::span<std::byte> out) const;
  Status ReadOrdered(const PanelRange& range, std::span<std::byte> out) const;
  // Do packed codes lie as a panel holds them?
  bool WholeBits() const { return scheme_->bits == 4 || scheme_->bits == 8; }
  void Reorder(const std::byte* natural, size_t stride, uint64_t rows,
               std::span<const uint32_t> order, std::byte* out) const;
  Status OutsideBits(const PanelRange& range, std::span<const std::byte> stored) const;

  Status ReadStoredScales(uint64_t n0, uint64_t rows, std::span<float> out) const;
  Status ReadPackedZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const;
  Status ReadUnpackedZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const;
  // For each of [rows, G] values, where its scale or unpacked zero point is stored.
  uint64_t ScaleIndex(uint64_t n, uint64_t group) const;
  uint64_t ScaleCount() const;

  uint64_t row_bytes() const { return row_bytes_; }

  RowTensors parts_;
  uint64_t row_bytes_;    // of a stored row
  uint64_t first_scale_;  // of this matrix
};

// One expert of a stack whose matrices are stored [K, N], FP8 or FP4 (column_linear.cpp). `expert`
// counts from the front; the scales are one per block [scheme.group_size, scheme.scale_rows] of the
// stored matrix, or one for each expert. Shapes have been checked.
std::unique_ptr<QuantizedLinear> MakeColumnLinear(const Checkpoint& checkpoint,
                                                  const RowModule& parts);

}  // namespace prepack
