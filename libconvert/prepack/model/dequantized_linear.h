#pragma once

// Weights of a quantized module as floating point, for those who compare or measure them.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "prepack/model/quantized_linear.h"

namespace prepack {

// The value of each of the 256 possible code bytes of a type, zero point not subtracted: the number
// itself for unsigned codes, two's complement for kS8, the FP8 number for kF8E4M3 (NaN included),
// the FP4 number in the low half for kF4E2M1.
const std::array<float, 256>& CodeValues(CodeType code);

// What the codes of a group become weights with.
struct DequantizeGroup {
  float zero_point = 0;
  float scale = 0;
};

// What reading rows needs; reused from call to call.
struct DequantizeBuffers {
  std::vector<std::byte> codes;
  std::vector<float> scales;
  std::vector<uint8_t> zero_points;
  std::vector<float> row;
  // Where groups have an order: this one, which is kept for the next panel, and of the input
  // channels [first, …) their groups.
  SharedOrder order;
  uint64_t first = 0;
  std::vector<uint32_t> group_of;
  std::vector<DequantizeGroup> groups;  // of a row
};

// Fills `out` [rows, cols] with W of a panel, in f32: (code − zero point) · scale, rounded once.
// Input channels are counted in k_order. A panel outside the module or a buffer of another size is
// kUsage.
Status DequantizePanel(const QuantizedLinear& linear, const PanelRange& range,
                       DequantizeBuffers& buffers, std::span<float> out);

// The same with input channels in the order of the checkpoint, whatever k_order is.
Status DequantizeInputs(const QuantizedLinear& linear, const PanelRange& range,
                        DequantizeBuffers& buffers, std::span<float> out);

// Fills `out` [rows, K] with W of channels [n0, n0 + rows), likewise in the order of the
// checkpoint.
Status DequantizeRows(const QuantizedLinear& linear, uint64_t n0, uint64_t rows,
                      DequantizeBuffers& buffers, std::span<float> out);

// A quantized module seen as its weights in bf16: what becomes of a module that no kernel of the
// target reads, so that layouts for unquantized weights take it.

// The scheme of a module of n by k weights that was dequantized: one piece, no scale.
Scheme DequantizedScheme(uint64_t n, uint64_t k);

// Codes are the weights, (code − zero point) · scale, rounded to f32 and then to bf16, nearest
// even, in the order of the checkpoint's input channels: there is no k_order. Scales read
// as 1, zero points as 0. Whole rows are dequantized for every panel, so it asks for narrow strips
// (wide_rows is 1) whatever the source does. A weight that bf16 cannot hold (it would be infinite)
// is kUnsupported. `source` must outlive the result.
std::unique_ptr<QuantizedLinear> Dequantized(const QuantizedLinear& source);

}  // namespace prepack
