#pragma once

// NaN and infinity in tensors that are not quantized: norms, biases, embeddings, heads, routers.
// Exports of models that overflowed have them, and loaders do not check.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "prepack/base/dtype.h"
#include "prepack/base/progress.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/format.h"
#include "prepack/measure/measurements.h"
#include "prepack/measure/module_statistics.h"

namespace prepack {

// The dtypes that unquantized weights have: F16, BF16, F32 and F64.
bool IsPlainFloat(DType dtype);

// How many of the values are NaN or infinite. `bytes` holds whole values of such a dtype.
uint64_t CountNotFinite(DType dtype, std::span<const std::byte> bytes);

// Reads every floating-point tensor outside quantized modules, a piece at a time, and
// appends one finding for each that has such values. Masks are left out: infinity is what they are
// made of. Errors are those of reading.
Status CheckPlainValues(const Checkpoint& checkpoint, const QuantizedModel& model,
                        Measurements& measured, unsigned threads, Progress& progress,
                        std::vector<Finding>& findings);

// What the values of tensors that are not quantized look like: are they there, and are they those
// of the dtype that the header names? An embedding or a norm of zeros, or of the bytes of another
// dtype, makes a model that talks nonsense, and no loader looks.

// Zeros are counted in blocks of this many bytes: weights pruned one by one are not empty.
inline constexpr uint64_t kZeroBlockBytes = 256;
// More of an embedding or head than rows of padding.
inline constexpr double kZeroShare = 0.25;
// Deviation of the exponents of a tensor's values: 1.6 for a bell curve of any width. F16 read as
// BF16 has 12, half of F32's bytes 50; BF16 read as F16 has 0.3.
inline constexpr double kLargestExponents = 5;
inline constexpr double kSmallestExponents = 0.7;
// The rms of a norm against the median of the norms of the decoder.
inline constexpr double kNormSize = 300;

struct PlainStatistics {
  uint64_t bytes = 0;
  uint64_t zero_bytes = 0;      // in blocks of zeros
  Moments<uint64_t> exponents;  // as stored, of values other than 0

  void Merge(const PlainStatistics& other);
  double ZeroShare() const;
  // 2 to the mean exponent.
  double TypicalMagnitude(DType dtype) const;
};

// `bytes` are whole values of a plain floating-point dtype.
PlainStatistics MeasurePlain(DType dtype, std::span<const std::byte> bytes);

// Whether JudgePlain looks at a tensor of this name and shape.
bool IsJudgedPlain(const StoredTensor& tensor);

struct PlainTensor {
  const StoredTensor* tensor = nullptr;
  PlainStatistics statistics;
};

// Appends what is suspicious about tensors for which IsJudgedPlain holds. `family` is model_type:
// some families store a norm as what is added to 1.
void JudgePlain(const Checkpoint& checkpoint, std::string_view family,
                const std::vector<PlainTensor>& tensors, std::vector<Finding>& findings);

// tie_word_embeddings against what is stored as head and embedding: a head that differs though it
// is tied, and two equal copies. Without `read_data` only dtype and shape are compared. Errors are
// those of reading.
Status CheckTiedWeights(const Checkpoint& checkpoint, const QuantizedModel& model, bool read_data,
                        std::vector<Finding>& findings);

// The embedding that stands for the tensor `head`, where config.json ties the two and `head` is the
// name of an output head; otherwise null.
const StoredTensor* TiedEmbedding(const Checkpoint& checkpoint, std::string_view head);

// A tensor that is not quantized has the values of the baseline's tensor of that name, up to the
// rounding of the coarser dtype: relative differences up to 2^-7 are taken for that.
inline constexpr double kTensorTolerance = 0x1p-7;

// Compares every floating-point tensor outside quantized modules, and every tensor that
// the baseline has besides: what is in one only is "baseline-missing", other shapes are
// "baseline-shape", other values "baseline-tensor-differs". Reads a piece at a time. Errors are
// those of reading.
Status CompareOtherTensors(const Checkpoint& checkpoint, const QuantizedModel& model,
                           const Checkpoint& baseline, Measurements& measured, unsigned threads,
                           Progress& progress, std::vector<Finding>& findings);

}  // namespace prepack
