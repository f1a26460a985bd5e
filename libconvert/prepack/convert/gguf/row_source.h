#pragma once

// Rows of a source in the bytes that a GGUF tensor has for them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/convert/gguf/pack_blocks.h"
#include "prepack/convert/gguf/sources.h"
#include "prepack/gguf/ggml_types.h"
#include "prepack/model/dequantized_linear.h"

namespace prepack::gguf {

// Of one thread, reused from read to read.
struct RowBuffers {
  std::vector<std::byte> codes;
  std::vector<float> scales;
  std::vector<uint8_t> zero_points;
  std::vector<float> weights;
  DequantizeBuffers dequantize;
  std::vector<std::byte> rows;   // of the writer
  std::vector<Rounded> rounded;  // the same
};

class RowSource {
 public:
  RowSource() = default;
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;
  virtual ~RowSource() = default;

  // Fills `out` with rows [n0, n0 + rounded.size()), and for each of them what was not exact. From
  // any thread.
  virtual Status Read(uint64_t n0, std::span<std::byte> out, RowBuffers& buffers,
                      std::span<Rounded> rounded) const = 0;
};

// All rows of a source as rows of a tensor of that type: of modules that it holds their codes, else
// their weights, as floats or quantized. The arguments must outlive it.
std::unique_ptr<RowSource> MakeRowSource(const Checkpoint& checkpoint, const Source& source,
                                         GgmlType type);

}  // namespace prepack::gguf
