#pragma once

// A module in the tensors of GPTQ as a QuantizedLinear (mirrors GPTQModel 7,
// nn_modules/qlinear/__init__.py, and vLLM 0.32, quantization/auto_gptq.py). For N = 3, K = 16,
// 4 bits, one group:
//
//     qweight  I32 [K/8, N]   word [k/8, n] holds codes k … k+7 of channel n, the first in its
//                             lowest bits:   n = 0      n = 1      n = 2
//                                     row 0  k7 … k0    k7 … k0    k7 … k0
//                                     row 1  k15 … k8   k15 … k8   k15 … k8
//     qzeros   I32 [G, ⌈N/8⌉] word [g, n/8] holds the zero points of channels n … n+7
//     scales   F16 [G, N]
//     g_idx    I32 [K]        the group of each input channel (formats/gptq/shape.h), optional
//
// Other widths are drawn in kernels/code_rows.h. A panel is that transposed, word by word: rows of
// words are read, widened to 4 or 8 bits, brought into k_order, and transposed.

#include <cstdint>
#include <memory>
#include <span>

#include "prepack/base/function_ref.h"
#include "prepack/formats/gptq/module.h"
#include "prepack/formats/gptq/zeros.h"
#include "prepack/formats/stored_linear.h"

namespace prepack::gptq {

class Linear final : public StoredLinear {
 public:
  // Of tensors that CheckShape has accepted. `symmetric_field` is what a symmetric module
  // stores for every zero point. `reordered`: g_idx holds an order.
  Linear(const Checkpoint& checkpoint, std::string_view module, const Shape& shape,
         const Settings& settings, bool reordered, uint32_t symmetric_field);
  // The other one in the order of the file.
  struct InStoredOrder {
    const Linear& linear;
  };
  explicit Linear(const InStoredOrder& other);

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override;
  bool HasColumns(const PanelRange& range) const override;
  Status ReadColumns(const PanelRange& range, std::span<std::byte> out) const override;
  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override;
  // Of a symmetric module, checks that the stored zero points say so too.
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override;
  std::unique_ptr<QuantizedLinear> InModelOrder() const override;
  StoredBits WhereCode(uint64_t n, uint64_t k) const override;
  StoredBits WhereScale(uint64_t n, uint64_t g) const override;
  StoredBits WhereZeroPoint(uint64_t n, uint64_t g) const override;
  PanelRange CodesNear(uint64_t byte) const override;

 private:
  // Rows of words [row, row + count) of the panel's channels.
  Status ReadWordRows(const PanelRange& range, uint64_t row, uint64_t count, uint32_t* out) const;
  // Units of codes, widened.
  Status ReadUnits(const PanelRange& range, uint64_t unit, uint64_t count, uint32_t* wide) const;
  // Called with units [unit, unit + count) of the panel's channels, widened: words [., channels],
  // rows `stride` bytes apart.
  using UnitVisitor =
      FunctionRef<void(const std::byte* wide, size_t stride, uint64_t unit, uint64_t count)>;
  // All units from `first` to before `last`, in order, in one or several calls.
  Status VisitWords(const PanelRange& range, uint64_t first, uint64_t rows, ByteVisitor work) const;
  Status VisitUnits(const PanelRange& range, uint64_t first, uint64_t last,
                    UnitVisitor visit) const;
  using PieceVisitor = FunctionRef<void(const std::byte* piece, uint64_t word, uint64_t count)>;
  static void VisitPieces(const PanelRange& range, const std::byte* rows, size_t stride,
                          uint64_t count, PieceVisitor visit);
  bool IsDense(const PanelRange& range) const;
  Status ReadDense(const PanelRange& range, std::span<std::byte> out) const;
  Status ReadNatural(const PanelRange& range, std::span<std::byte> out) const;
  Status ReadOrdered(const PanelRange& range, std::span<std::byte> out) const;
  Status ReadStoredColumns(const PanelRange& range, std::byte* out) const;
  // Puts widened words [words, channels], rows `stride` bytes apart, whose first code is input
  // channel k0, into the panel; what lies outside it is left out.
  void Deliver(const PanelRange& range, const std::byte* wide, size_t stride, uint64_t words,
               uint64_t k0, std::span<std::byte> out) const;
  Status ReadZeroFields(uint64_t group, uint64_t n0, std::span<uint8_t> out) const;
  Result<bool> HasPlainZeros(uint64_t n0, uint64_t rows) const;
  Status CheckSymmetric(uint64_t n0, uint64_t rows, std::span<const uint8_t> fields) const;

  Shape shape_;
  ZeroRules zero_rules_;
  uint32_t symmetric_field_;
  CodeUnit unit_;
};

}  // namespace prepack::gptq
