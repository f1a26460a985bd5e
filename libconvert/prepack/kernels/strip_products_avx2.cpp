// AVX2 and FMA: the sums of several rows stay in registers, so that a vector of weights is loaded
// once for all of them. This file is compiled without contraction: products and sums that are
// written apart are rounded apart.

#include <immintrin.h>

#include <cstring>

#include "prepack/kernels/strip_products.h"

namespace prepack {
namespace {

// 2 · 6 sums, two vectors of weights, one of x and one product: all sixteen registers.
constexpr size_t kRowsAtOnce = 6;
constexpr size_t kLanes = 8;
static_assert(kStripChannels == 2 * kLanes);

// What floats and pairs differ in. x counts input channels, or pairs of them.
struct Floats {
  using Row = FloatStripRow;
  using Vector = __m256;
  static constexpr size_t kWidth = 1;  // numbers of an input channel or pair
  static Vector Load(const float* from) { return _mm256_loadu_ps(from); }
  static void Store(float* to, Vector value) { _mm256_storeu_ps(to, value); }
  static Vector Broadcast(const float* x) { return _mm256_broadcast_ss(x); }
  static Vector Add(Vector sum, Vector x, Vector w) {
    return _mm256_add_ps(sum, _mm256_mul_ps(x, w));
  }
};

struct Pairs {
  using Row = PairStripRow;
  using Vector = __m256i;
  static constexpr size_t kWidth = 2;
  static Vector Load(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  }
  static void Store(int32_t* to, Vector value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value);
  }
  static Vector Broadcast(const int16_t* x) {
    int32_t pair = 0;
    std::memcpy(&pair, x, sizeof(pair));
    return _mm256_set1_epi32(pair);
  }
  static Vector Add(Vector sum, Vector x, Vector w) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(x, w));
  }
};

// The sums of kRows rows. One row and the rest, not an array: g++ 12 would store an array in memory
// with every product.
template <typename Kind, size_t kRows>
struct Sums {
  using Row = typename Kind::Row;
  using Vector = typename Kind::Vector;

  [[gnu::always_inline]] void Load(const Row* rows) {
    low = Kind::Load(rows->sums);
    high = Kind::Load(rows->sums + kLanes);
    rest.Load(rows + 1);
  }
  [[gnu::always_inline]] void Add(const Row* rows, size_t at, Vector w_low, Vector w_high) {
    const Vector x = Kind::Broadcast(rows->x + at);
    low = Kind::Add(low, x, w_low);
    high = Kind::Add(high, x, w_high);
    rest.Add(rows + 1, at, w_low, w_high);
  }
  [[gnu::always_inline]] void Store(const Row* rows) const {
    Kind::Store(rows->sums, low);
    Kind::Store(rows->sums + kLanes, high);
    rest.Store(rows + 1);
  }

  Vector low;
  Vector high;
  Sums<Kind, kRows - 1> rest;
};

template <typename Kind>
struct Sums<Kind, 0> {
  using Row = typename Kind::Row;
  using Vector = typename Kind::Vector;
  void Load(const Row* /*rows*/) {}
  void Add(const Row* /*rows*/, size_t /*at*/, Vector /*w_low*/, Vector /*w_high*/) {}
  void Store(const Row* /*rows*/) const {}
};

template <typename Kind, size_t kRows, typename W>
void AddRows(const typename Kind::Row* rows, const W* w, size_t count) {
  Sums<Kind, kRows> sums;
  sums.Load(rows);
  for (size_t k = 0; k < count; ++k) {
    const auto w_low = Kind::Load(w);
    const auto w_high = Kind::Load(w + Kind::kWidth * kLanes);
    sums.Add(rows, k * Kind::kWidth, w_low, w_high);
    w += Kind::kWidth * kStripChannels;
  }
  sums.Store(rows);
}

template <typename Kind, typename W>
void AddAllRows(std::span<const typename Kind::Row> rows, const W* w, size_t count) {
  const auto* row = rows.data();
  size_t left = rows.size();
  for (; left >= kRowsAtOnce; left -= kRowsAtOnce, row += kRowsAtOnce) {
    AddRows<Kind, kRowsAtOnce>(row, w, count);
  }
  for (; left >= 2; left -= 2, row += 2) AddRows<Kind, 2>(row, w, count);
  if (left == 1) AddRows<Kind, 1>(row, w, count);
}

void Fuse(const float* a, const float* b, size_t count, float* sums) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    _mm256_storeu_ps(sums + i, _mm256_fmadd_ps(_mm256_loadu_ps(a + i), _mm256_loadu_ps(b + i),
                                               _mm256_loadu_ps(sums + i)));
  }
  for (; i < count; ++i) sums[i] = __builtin_fmaf(a[i], b[i], sums[i]);
}

}  // namespace

const StripProducts kStripProductsAvx2 = {
    .floats = AddAllRows<Floats, float>, .pairs = AddAllRows<Pairs, int16_t>, .fuse = Fuse};

}  // namespace prepack
