#ifndef PREPACK_GEMM_MODEL_ROWS_H_
#define PREPACK_GEMM_MODEL_ROWS_H_

// Rows of activations as the models multiply them: whole, or, where a row is nearly all zero, just
// the numbers that are not. x = 0 adds exactly nothing to a sum, as long as weights are finite.

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace prepack {

// Number x at input channel k.
template <typename T>
struct ModelEntry {
  uint64_t k;
  T x;
};

// Row m, of which `entries` differ from `base`; ascending k.
template <typename T>
struct SparseModelRow {
  uint64_t m;
  T base;
  std::vector<ModelEntry<T>> entries;

  // Those of input channels [begin, end).
  std::span<const ModelEntry<T>> Between(uint64_t begin, uint64_t end) const {
    const auto before = [](const ModelEntry<T>& entry, uint64_t k) { return entry.k < k; };
    const auto first = std::lower_bound(entries.begin(), entries.end(), begin, before);
    return {first, std::lower_bound(first, entries.end(), end, before)};
  }
};

template <typename T>
struct ModelRows {
  std::vector<uint64_t> dense;  // ascending m
  std::vector<SparseModelRow<T>> sparse;
};

// Divides the rows of x [M, K] with K = k; base[m] is what zero became in row m. A row is sparse
// when less than an eighth of it differs from that.
template <typename T>
ModelRows<T> DivideRows(std::span<const T> x, uint64_t k, std::span<const T> base) {
  ModelRows<T> rows;
  for (uint64_t m = 0; m < base.size(); ++m) {
    const std::span<const T> row = x.subspan(m * k, k);
    const auto zeros = static_cast<uint64_t>(std::count(row.begin(), row.end(), base[m]));
    if (8 * (k - zeros) >= k) {
      rows.dense.push_back(m);
      continue;
    }
    SparseModelRow<T> sparse{.m = m, .base = base[m], .entries = {}};
    for (uint64_t i = 0; i < k; ++i) {
      if (row[i] != base[m]) sparse.entries.push_back({.k = i, .x = row[i]});
    }
    rows.sparse.push_back(std::move(sparse));
  }
  return rows;
}

}  // namespace prepack

#endif  // PREPACK_GEMM_MODEL_ROWS_H_
