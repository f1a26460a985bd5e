#include "formats/compressed_tensors_pack.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "base/checked.h"
#include "formats/finding.h"
#include "formats/module_tensors.h"

namespace prepack {

namespace {

// N, or E and N, of weight_packed: all dimensions but the last.
MatrixShape ShapeOfRows(const StoredTensor& packed) {
  MatrixShape shape;
  if (packed.shape.size() == 3) shape.experts = packed.shape[0];
  shape.n = packed.shape[packed.shape.size() - 2];
  return shape;
}

bool HasTwoPackings(uint32_t bits) {
  return 32 % bits != 0;
}

bool FitsEither(const CtArgs& weights, uint64_t k, uint64_t words) {
  return RowWords(RowCodes::kDense, weights.num_bits, k) == words ||
         RowWords(RowCodes::kWordAligned, weights.num_bits, k) == words;
}

// K as weight_shape says, checked against weight_packed.
Result<uint64_t> ReadStoredK(const Checkpoint& checkpoint, const CtModule& module,
                             const CtArgs& weights, const MatrixShape& rows) {
  const StoredTensor& stored = *module.shape;
  Status status =
      RequireDType(checkpoint, stored, "the numbers of weight_shape", {DType::kI64, DType::kI32});
  if (!status.ok()) return status;
  const size_t rank = module.packed->shape.size();
  if (stored.shape.size() != 1 || stored.shape[0] != rank) {
    return Malformed(checkpoint.Where(stored), "weight_shape has the wrong shape")
        .Found(ShowShape(stored.shape))
        .Expected(fmt::format("[{}]", rank))
        .Id(FindingId("tensor-shape"));
  }
  const size_t each = DTypeBits(stored.dtype) / 8;
  std::array<std::byte, 24> buffer{};
  const auto bytes = std::span(buffer).first(rank * each);
  status = checkpoint.Read(stored, 0, bytes);
  if (!status.ok()) return status;
  std::vector<int64_t> dims;
  for (size_t i = 0; i < rank; ++i) dims.push_back(LoadLittleInt(bytes.subspan(i * each, each)));
  const int64_t k = dims.back();
  const uint64_t words = module.packed->shape.back();
  const bool rows_agree = static_cast<uint64_t>(dims[rank - 2]) == rows.n &&
                          (!rows.experts || static_cast<uint64_t>(dims[0]) == *rows.experts);
  if (rows_agree && k > 0 && FitsEither(weights, static_cast<uint64_t>(k), words)) {
    return static_cast<uint64_t>(k);
  }
  return Malformed(checkpoint.Where(stored), "weight_shape contradicts weight_packed")
      .Found(fmt::format("[{}]", fmt::join(dims, ", ")))
      .Expected(fmt::format("[{}, K] with K in {} words of {}-bit codes", rows.n, words,
                            weights.num_bits))
      .Id(FindingId("tensor-shape"));
}

// K where weight_shape is missing (or empty, as some tools leave it): G · group size.
Result<uint64_t> RecoverK(const Checkpoint& checkpoint, const CtModule& module,
                          const CtArgs& weights, FindingTally& findings) {
  const uint64_t words = module.packed->shape.back();
  std::optional<uint64_t> k;
  const TensorShape& scale = module.scale->shape;
  if (weights.strategy == CtStrategy::kGroup && !scale.empty()) {
    k = CheckedMul(scale.back(), weights.group_size);
  }
  if (!k || *k == 0 || HasTwoPackings(weights.num_bits) || !FitsEither(weights, *k, words)) {
    return Malformed(checkpoint.Where(*module.packed),
                     "weight_shape is missing, and K does not follow from the other tensors")
        .Found(fmt::format("{} words per row, weight_scale {}", words, ShowShape(scale)))
        .Hint("Save the model again; a channel-wise scale does not tell how many codes are padding")
        .Id(FindingId("weight-shape-missing"));
  }
  findings.Add("shape-recovered", module.name,
               "weight_shape is missing; K follows from groups and group size");
  return *k;
}

Result<RowCodes> FindPacking(const Checkpoint& checkpoint, const CtModule& module, uint32_t bits,
                             uint64_t k, const std::optional<CtVersion>& version) {
  if (!HasTwoPackings(bits)) return RowCodes::kDense;
  const uint64_t words = module.packed->shape.back();
  const bool dense = RowWords(RowCodes::kDense, bits, k) == words;
  const bool aligned = RowWords(RowCodes::kWordAligned, bits, k) == words;
  const auto refuse = [&](std::string_view what, std::string_view hint) {
    return Malformed(checkpoint.Where(*module.packed), what)
        .Found(fmt::format(
            "{} words for {} codes of {} bits, {}", words, k, bits,
            version ? fmt::format("version {}", fmt::join(version->parts, ".")) : "no version"))
        .Expected(fmt::format("{} words since compressed-tensors 0.18.0, {} before",
                              RowWords(RowCodes::kDense, bits, k),
                              RowWords(RowCodes::kWordAligned, bits, k)))
        .Hint(hint)
        .Id(FindingId("packing-undecidable"));
  };
  if (!version) {
    if (dense != aligned) return dense ? RowCodes::kDense : RowCodes::kWordAligned;
    return refuse("which of the two packings the codes are in cannot be told",
                  "Put the compressed-tensors version that wrote the model into the config");
  }
  const bool dense_by_version = !(*version < kCtDenseSince);
  if (dense_by_version ? dense : aligned) {
    return dense_by_version ? RowCodes::kDense : RowCodes::kWordAligned;
  }
  return refuse("the version contradicts the number of words",
                "A tool may have changed the version; set the one that wrote the model");
}

}  // namespace

Result<CtPackedShape> FindCtPackedShape(const Checkpoint& checkpoint, const CtModule& module,
                                        const CtArgs& weights, const CtConfig& config,
                                        FindingTally& findings) {
  CtPackedShape found;
  found.shape = ShapeOfRows(*module.packed);
  const bool stored = module.shape != nullptr && module.shape->bytes > 0;
  const Result<uint64_t> k = stored ? ReadStoredK(checkpoint, module, weights, found.shape)
                                    : RecoverK(checkpoint, module, weights, findings);
  if (!k.ok()) return k.status();
  found.shape.k = *k;
  const Result<RowCodes> packing =
      FindPacking(checkpoint, module, weights.num_bits, *k, config.version);
  if (!packing.ok()) return packing.status();
  found.packing = *packing;
  return found;
}

}  // namespace prepack
