#ifndef PREPACK_VERIFY_GGUF_WEIGHTS_H_
#define PREPACK_VERIFY_GGUF_WEIGHTS_H_

// Compares the weights of a GGUF tensor with those of its source.

#include <cstdint>
#include <map>
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

// What the weights are compared with. All of it must outlive the comparisons.
struct GgufTruth {
  const Checkpoint& source;
  const SecondDecoder& decoder;
  std::vector<const gguf::Source*> sources;  // as Manifest::sources; null: the source has none
};

class GgufComparison {
 public:
  GgufComparison(const gguf::Model& model, const gguf::Tensor& tensor,
                 const gguf::ManifestTensor& record, const GgufTruth& truth);

  // Reads the factors of NVFP4. kMalformed when rows are not where the source has some.
  Status Prepare();
  uint64_t stripes() const;
  uint64_t stripe_bytes() const { return stripe_rows_ * row_bytes_; }
  // From any thread.
  Result<WeightCounts> Compare(uint64_t stripe) const;

 private:
  Status CompareRows(std::span<const gguf::PlacedRow> rows, uint64_t first,
                     std::span<const float> weights, WeightCounts& counts) const;
  Status ReadSource(const gguf::Source& source, uint64_t n0, uint64_t rows,
                    std::vector<float>& expected) const;
  void CompareRow(const gguf::PlacedRow& row, std::span<const float> weights,
                  std::span<const float> expected, WeightCounts& counts) const;
  float Bound(float expected, float largest) const;

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

#endif  // PREPACK_VERIFY_GGUF_WEIGHTS_H_
