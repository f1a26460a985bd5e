#pragma once

// The bodies of strip_products.h: the sums of several rows stay in registers, so that a vector of
// weights is loaded once for all of them. All files are compiled without contraction: products and
// sums that are written apart are rounded apart.

namespace prepack::PREPACK_LEVEL {

#ifdef PREPACK_SCALAR

void AddFloatProducts(const FloatStripRow* rows, size_t row_count, const float* w, size_t count) {
  for (size_t r = 0; r < row_count; ++r) {
    const FloatStripRow& row = rows[r];
    std::array<float, kStripChannels> sums;  // a copy, which cannot overlap with w
    std::copy_n(row.sums, kStripChannels, sums.begin());
    for (size_t k = 0; k < count; ++k) {
      for (size_t i = 0; i < kStripChannels; ++i) sums[i] += row.x[k] * w[k * kStripChannels + i];
    }
    std::ranges::copy(sums, row.sums);
  }
}

void AddPairProducts(const PairStripRow* rows, size_t row_count, const int16_t* w, size_t count) {
  for (size_t r = 0; r < row_count; ++r) {
    const PairStripRow& row = rows[r];
    std::array<uint32_t, kStripChannels> sums;  // unsigned: they wrap
    std::copy_n(row.sums, kStripChannels, sums.begin());
    for (size_t k = 0; k < count; ++k) {
      const int16_t* pairs = w + 2 * k * kStripChannels;
      for (size_t i = 0; i < kStripChannels; ++i) {
        sums[i] += static_cast<uint32_t>(row.x[2 * k] * pairs[2 * i] +
                                         row.x[2 * k + 1] * pairs[2 * i + 1]);
      }
    }
    std::ranges::copy(sums, row.sums);
  }
}

void FuseProducts(const float* a, const float* b, size_t count, float* sums) {
  for (size_t i = 0; i < count; ++i) sums[i] = std::fma(a[i], b[i], sums[i]);
}

#else

namespace {

// 2 · 6 sums, two vectors of weights, one of x and one product: all sixteen registers of AVX2.
constexpr size_t kStripRows = 6;
static_assert(kStripChannels == 2 * kVectorFloats);

// What floats and pairs differ in. x counts input channels, or pairs of them.
struct FloatProducts {
  using Row = FloatStripRow;
  using Sum = Floats;
  static constexpr size_t kWidth = 1;  // numbers of an input channel or pair
  [[gnu::always_inline]] static Sum Load(const float* from) { return LoadFloats(from); }
  [[gnu::always_inline]] static void Store(float* to, Sum value) { StoreFloats(to, value); }
  [[gnu::always_inline]] static Sum Broadcast(const float* x) { return RepeatFloat(*x); }
  [[gnu::always_inline]] static Sum Add(Sum sum, Sum x, Sum w) {
    return AddFloats(sum, MultiplyFloats(x, w));
  }
};

struct PairProducts {
  using Row = PairStripRow;
  using Sum = Vector;
  static constexpr size_t kWidth = 2;
  [[gnu::always_inline]] static Sum Load(const void* from) { return PREPACK_LEVEL::Load(from); }
  [[gnu::always_inline]] static void Store(int32_t* to, Sum value) {
    PREPACK_LEVEL::Store(to, value);
  }
  [[gnu::always_inline]] static Sum Broadcast(const int16_t* x) {
    uint32_t pair = 0;
    __builtin_memcpy(&pair, x, sizeof pair);
    return Numbers32(pair);
  }
  [[gnu::always_inline]] static Sum Add(Sum sum, Sum x, Sum w) {
    return Add32(sum, MultiplyPairs(x, w));
  }
};

// The sums of kRows rows. One row and the rest, not an array: g++ 12 would store an array in memory
// with every product.
template <typename Kind, size_t kRows>
struct StripSums {
  using Row = typename Kind::Row;
  using Sum = typename Kind::Sum;

  [[gnu::always_inline]] void Load(const Row* rows) {
    low = Kind::Load(rows->sums);
    high = Kind::Load(rows->sums + kVectorFloats);
    rest.Load(rows + 1);
  }
  [[gnu::always_inline]] void Add(const Row* rows, size_t at, Sum w_low, Sum w_high) {
    const Sum x = Kind::Broadcast(rows->x + at);
    low = Kind::Add(low, x, w_low);
    high = Kind::Add(high, x, w_high);
    rest.Add(rows + 1, at, w_low, w_high);
  }
  [[gnu::always_inline]] void Store(const Row* rows) const {
    Kind::Store(rows->sums, low);
    Kind::Store(rows->sums + kVectorFloats, high);
    rest.Store(rows + 1);
  }

  Sum low;
  Sum high;
  StripSums<Kind, kRows - 1> rest;
};

template <typename Kind>
struct StripSums<Kind, 0> {
  using Row = typename Kind::Row;
  using Sum = typename Kind::Sum;
  void Load(const Row* /*rows*/) {}
  void Add(const Row* /*rows*/, size_t /*at*/, Sum /*w_low*/, Sum /*w_high*/) {}
  void Store(const Row* /*rows*/) const {}
};

template <typename Kind, size_t kRows, typename W>
void AddRows(const typename Kind::Row* rows, const W* w, size_t count) {
  StripSums<Kind, kRows> sums;
  sums.Load(rows);
  for (size_t k = 0; k < count; ++k) {
    const auto w_low = Kind::Load(w);
    const auto w_high = Kind::Load(w + Kind::kWidth * kVectorFloats);
    sums.Add(rows, k * Kind::kWidth, w_low, w_high);
    w += Kind::kWidth * kStripChannels;
  }
  sums.Store(rows);
}

template <typename Kind, typename W>
void AddAllRows(const typename Kind::Row* row, size_t left, const W* w, size_t count) {
  // Eight rows are four and four: two alone would wait for their own sums.
  for (; left >= kStripRows && left != 8; left -= kStripRows, row += kStripRows) {
    AddRows<Kind, kStripRows>(row, w, count);
  }
  for (; left >= 4; left -= 4, row += 4) AddRows<Kind, 4>(row, w, count);
  for (; left >= 2; left -= 2, row += 2) AddRows<Kind, 2>(row, w, count);
  if (left == 1) AddRows<Kind, 1>(row, w, count);
}

}  // namespace

void AddFloatProducts(const FloatStripRow* rows, size_t row_count, const float* w, size_t count) {
  AddAllRows<FloatProducts>(rows, row_count, w, count);
}

void AddPairProducts(const PairStripRow* rows, size_t row_count, const int16_t* w, size_t count) {
  AddAllRows<PairProducts>(rows, row_count, w, count);
}

void FuseProducts(const float* a, const float* b, size_t count, float* sums) {
  size_t i = 0;
  for (; i + kVectorFloats <= count; i += kVectorFloats) {
    StoreFloats(sums + i, FuseFloats(LoadFloats(a + i), LoadFloats(b + i), LoadFloats(sums + i)));
  }
  for (; i < count; ++i) sums[i] = __builtin_fmaf(a[i], b[i], sums[i]);
}

#endif

}  // namespace prepack::PREPACK_LEVEL
