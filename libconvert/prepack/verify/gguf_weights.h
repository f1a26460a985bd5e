#pragma once

// The weights of a GGUF tensor beside those of its source: what all levels of `verify` compare.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/convert/gguf/manifest.h"
#include "prepack/convert/gguf/sources.h"
#include "prepack/gguf/model.h"
#include "prepack/verify/second/decoder.h"

namespace prepack {

struct WeightCounts {
  uint64_t identical = 0;
  uint64_t rounded = 0;  // not identical, but as near as the type allows
  uint64_t wrong = 0;
  std::string first_wrong;  // which, and what it is

  void Add(WeightCounts other);
};

// What the weights are compared with. All of it must outlive the rows.
struct GgufTruth {
  const Checkpoint& source;
  const SecondDecoder& decoder;
  std::vector<const gguf::Source*> sources;  // as Manifest::sources; null: the source has none
};

// Some rows of a tensor, and memory to read them with; of one thread.
struct GgufStripe {
  uint64_t first = 0;
  uint64_t rows = 0;
  std::vector<std::byte> bytes;  // of the file
  std::vector<float> expected;   // [rows, K], as the second decoder reads them from the source
  std::vector<float> steps;      // [rows], the largest scale of each; 0 of floats
  DecodedRows decoded;
  std::vector<std::byte> stored;
  // Rows that have another order in the file.
  std::vector<float> scattered;
  std::vector<float> scattered_steps;
};

// A tensor whose rows are rows of the source.
class GgufRows {
 public:
  GgufRows(const gguf::Model& model, const gguf::Tensor& tensor, const gguf::ManifestTensor& record,
           const GgufTruth& truth);

  // Reads the factors of NVFP4. kMalformed when rows are not where the source has some.
  Status Prepare();

  const gguf::Tensor& tensor() const { return tensor_; }
  uint64_t rows() const { return rows_.rows(); }
  uint64_t columns() const { return columns_; }
  uint64_t row_bytes() const { return row_bytes_; }
  // So many are read at a time.
  uint64_t stripe_rows() const { return stripe_rows_; }
  // What reading a stripe takes, without the bytes of the file.
  static uint64_t MemoryOfStripe(uint64_t columns);

  // From any thread, as all that follows.
  Status Read(uint64_t first, uint64_t rows, GgufStripe& out) const;
  // By what llama.cpp multiplies the weights of a row after all else: the tensor NAME.scale of
  // NVFP4.
  float Factor(uint64_t row) const;
  std::span<const float> Expected(const GgufStripe& stripe, uint64_t row) const {
    return std::span(stripe.expected).subspan((row - stripe.first) * columns_, columns_);
  }
  // Counts how the weights of a row, as a decoder finds them in the file, without the factor, are
  // to those of the source.
  void Compare(const GgufStripe& stripe, uint64_t row, std::span<const float> weights,
               WeightCounts& counts) const;
  // How far weights may be off because their type has to round them.
  struct Bound {
    float relative = 0;  // to the weight
    float constant = 0;

    float Of(float weight) const { return std::abs(weight) * relative + constant; }
  };
  // `largest`: the largest of its row, of a weight that was quantized of its block.
  Bound BoundOf(float largest) const;
  // The columns that have it in common.
  uint64_t bounded_together() const;
  // The largest magnitude around column k, or half of what the codes of the row can mean, if that
  // is more.
  float Largest(const GgufStripe& stripe, uint64_t row, uint64_t k) const;

 private:
  Status ReadRows(std::span<const gguf::PlacedRow> rows, GgufStripe& out) const;
  Status ReadSource(const gguf::Source& source, uint64_t n0, std::span<float> expected,
                    std::span<float> steps, GgufStripe& memory) const;

  const gguf::Model& model_;
  const gguf::Tensor& tensor_;
  const gguf::ManifestTensor& record_;
  const GgufTruth& truth_;
  gguf::RowList rows_;
  uint64_t columns_;
  uint64_t row_bytes_ = 0;
  uint64_t stripe_rows_;
  std::vector<float> factors_;  // of NVFP4: of the matrices of the tensor
};

}  // namespace prepack
