#include "prepack/gemm/strip_model.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/gemm/model_operands.h"
#include "prepack/kernels/memory.h"

namespace prepack {
namespace {

constexpr uint64_t kStripSize = kRunInputs * kStripChannels;

// Products with a strip of floats, and with one of pairs.
void Multiply(const KernelTable& kernels, std::span<const FloatStripRow> rows, const float* w,
              uint64_t inputs) {
  kernels.add_float_products(rows.data(), rows.size(), w, inputs);
}

void Multiply(const KernelTable& kernels, std::span<const PairStripRow> rows, const int16_t* w,
              uint64_t inputs) {
  kernels.add_pair_products(rows.data(), rows.size(), w, CeilDiv(inputs, 2));
}

// The same for a single number, at input channel j of the strip.
void MultiplyOne(const KernelTable& kernels, float x, uint64_t j, const float* w, float* sums) {
  const FloatStripRow row{.x = &x, .sums = sums};
  kernels.add_float_products(&row, 1, w + j * kStripChannels, 1);
}

void MultiplyOne(const KernelTable& kernels, int16_t x, uint64_t j, const int16_t* w,
                 int32_t* sums) {
  std::array<int16_t, 2> pair{};
  pair[j % 2] = x;
  const PairStripRow row{.x = pair.data(), .sums = sums};
  kernels.add_pair_products(&row, 1, w + j / 2 * 2 * kStripChannels, 1);
}

// Weight (j, i) of a strip.
double At(const float* w, uint64_t j, uint64_t i) {
  return static_cast<double>(w[j * kStripChannels + i]);
}

double At(const int16_t* w, uint64_t j, uint64_t i) {
  const uint64_t pair = j / 2 * kStripChannels + i;
  return w[pair * 2 + j % 2];
}

// Makes weights of the input channel behind an odd number of them.
void Complete(float* /*w*/, uint64_t /*inputs*/) {}

void Complete(int16_t* w, uint64_t inputs) {
  if (inputs % 2 == 0) return;
  for (uint64_t i = 0; i < kStripChannels; ++i) w[((inputs - 1) * kStripChannels) + 2 * i + 1] = 0;
}

// sums += base · columns; floats are sparse around 0 only.
void AddBase(float /*base*/, std::span<const float> /*columns*/, float* /*sums*/) {}

void AddBase(int16_t base, std::span<const int32_t> columns, int32_t* sums) {
  for (uint64_t i = 0; i < columns.size(); ++i) {
    sums[i] = static_cast<int32_t>(static_cast<uint32_t>(sums[i]) +
                                   static_cast<uint32_t>(base) * static_cast<uint32_t>(columns[i]));
  }
}

}  // namespace

// Sums of the weights of each channel, where AddBase asks for them.
template <typename X, typename Sum>
std::array<Sum, kStripChannels> SumColumns(const KernelTable& kernels, const X* w,
                                           uint64_t inputs) {
  std::array<Sum, kStripChannels> columns{};
  if constexpr (std::is_integral_v<X>) {
    std::array<X, kRunInputs> ones;
    ones.fill(1);
    const StripRow<X, Sum> row{.x = ones.data(), .sums = columns.data()};
    Multiply(kernels, {&row, 1}, w, inputs);
  }
  return columns;
}

// The memory of one call: small, so that it costs next to nothing to allocate.
template <typename X, typename Sum>
struct StripModel<X, Sum>::Scratch {
  // From a page on: then no vector lies in two cache lines.
  std::vector<X, PageAllocator<X>> w;         // a run of each strip
  std::vector<Sum, PageAllocator<Sum>> sums;  // [M, kModelBlock]
  std::vector<StripRow<X, Sum>> dense;        // of one strip
  // Sums of the weights of a segment, where rows that are nearly all zero have bases.
  std::array<Sum, kModelBlock> columns;
  // None: no digests are wanted.
  const DigestFactors* factors = nullptr;
  uint64_t digested_from = 0;     // the first output channel
  std::vector<uint32_t> digests;  // of whole blocks
};

template <typename X, typename Sum>
StripModel<X, Sum>::StripModel(const PackedOperands& packed, const ModelInput& input,
                               std::vector<X> x, std::span<const X> base, uint64_t segment)
    : packed_(packed),
      m_(input.m),
      dtype_(input.dtype),
      kernels_(Kernels()),
      slab_(input.slab.value_or(InputSlab{.k0 = 0, .inputs = packed.k})),
      columns_(InputColumns(packed, input)),
      x_(std::move(x)),
      zeros_outside_(true),
      rows_(DivideRows<X>(x_, columns_, base)),
      segment_(segment),
      scales_(LoadFloats(packed.scale_dtype, packed.scale)),
      bias_(LoadFloats(packed.bias_dtype, packed.bias)) {
  for (const SparseModelRow<X>& row : rows_.sparse) {
    has_bases_ = has_bases_ || row.base != 0;
    for (const ModelEntry<X>& entry : row.entries) {
      sparse_.push_back({.k = entry.k, .m = row.m, .x = static_cast<X>(entry.x - row.base)});
    }
  }
  std::ranges::stable_sort(sparse_, {}, &SparseEntry::k);
  for (uint64_t m = 1; input.slab && m <= m_; ++m) {
    zeros_outside_ = zeros_outside_ && x_[m * columns_ - 1] == 0;
  }
  x_.push_back(0);
}

template <typename X, typename Sum>
float StripModel<X, Sum>::Bias(uint64_t n) const {
  return BiasOf(bias_, n);
}

template <typename X, typename Sum>
void StripModel<X, Sum>::RoundAll(DType dtype, std::span<const float> values, float* y) const {
  if (dtype != DType::kBF16) {
    for (size_t i = 0; i < values.size(); ++i) y[i] = RoundByInstruction(dtype, values[i]);
    return;
  }
  // The most frequent type, in a loop without a choice.
  for (size_t i = 0; i < values.size(); ++i) y[i] = RoundByInstruction(DType::kBF16, values[i]);
}

// How many input channels there are in the run that begins at k0.
template <typename X, typename Sum>
uint64_t StripModel<X, Sum>::InputsFrom(uint64_t k0) const {
  const uint64_t segment_end = std::min(packed_.k, (k0 / segment_ + 1) * segment_);
  return std::min(kRunInputs, segment_end - k0);
}

template <typename X, typename Sum>
void StripModel<X, Sum>::MultiplyDense(const ModelPiece& strip, uint64_t column,
                                       Scratch& scratch) const {
  for (uint64_t j = 0; j < rows_.dense.size(); ++j) {
    const uint64_t m = rows_.dense[j];
    scratch.dense[j] = {.x = &x_[m * columns_ + strip.k0 - slab_.k0],
                        .sums = &scratch.sums[m * kModelBlock + column]};
  }
  Multiply(kernels_, scratch.dense, scratch.w.data(), strip.inputs);
}

template <typename X, typename Sum>
void StripModel<X, Sum>::MultiplySparse(const ModelPiece& strip, uint64_t column,
                                        Scratch& scratch) const {
  if (has_bases_) {
    const auto columns = SumColumns<X, Sum>(kernels_, scratch.w.data(), strip.inputs);
    AddBase(X{1}, columns, &scratch.columns[column]);
  }
  const uint64_t first = strip.k0 - slab_.k0;  // column of x
  for (const SparseEntry& entry : EntriesOf(strip)) {
    MultiplyOne(kernels_, entry.x, entry.k - first, scratch.w.data(),
                &scratch.sums[entry.m * kModelBlock + column]);
  }
}

template <typename X, typename Sum>
std::span<const typename StripModel<X, Sum>::SparseEntry> StripModel<X, Sum>::EntriesOf(
    const ModelPiece& strip) const {
  const uint64_t first = strip.k0 - slab_.k0;  // column of x
  const auto begin = std::ranges::lower_bound(sparse_, first, {}, &SparseEntry::k);
  auto end = begin;
  while (end != sparse_.end() && end->k < first + strip.inputs) ++end;
  return {begin, end};
}

// The same for a strip that has not been decoded.
template <typename X, typename Sum>
void StripModel<X, Sum>::DecodeAndMultiplyFew(const ModelPiece& strip, uint64_t column,
                                              Scratch& scratch) const {
  const uint64_t first = strip.k0 - slab_.k0;  // column of x
  for (const SparseEntry& entry : EntriesOf(strip)) {
    const uint64_t begin = (entry.k - first) / kFewInputs * kFewInputs;
    Decode({.n0 = strip.n0,
            .rows = strip.rows,
            .k0 = strip.k0 + begin,
            .inputs = std::min(kFewInputs, strip.inputs - begin)},
           scratch.w.data());
    MultiplyOne(kernels_, entry.x, entry.k - first - begin, scratch.w.data(),
                &scratch.sums[entry.m * kModelBlock + column]);
  }
}

// Every row has the same number in all input channels of the strip: what zero became.
template <typename X, typename Sum>
void StripModel<X, Sum>::MultiplyOutside(const ModelPiece& strip, uint64_t column,
                                         Scratch& scratch) const {
  const auto columns = SumColumns<X, Sum>(kernels_, scratch.w.data(), strip.inputs);
  for (uint64_t m = 0; m < m_; ++m) {
    AddBase(x_[(m + 1) * columns_ - 1], columns, &scratch.sums[m * kModelBlock + column]);
  }
}

template <typename X, typename Sum>
void StripModel<X, Sum>::AddRun(const ModelPiece& run, Scratch& scratch) const {
  const bool inside = Touches(run.k0, run.k0 + run.inputs);
  if (!inside && zeros_outside_) return;
  const uint64_t digested = inside ? DigestCodesOf(run, scratch) : 0;
  for (uint64_t i = 0; i < run.rows; i += kStripChannels) {
    const ModelPiece strip{.n0 = run.n0 + i,
                           .rows = std::min<uint64_t>(kStripChannels, run.rows - i),
                           .k0 = run.k0,
                           .inputs = run.inputs};
    if (i < digested) {
      DecodeAndMultiplyFew(strip, i, scratch);
      continue;
    }
    Decode(strip, scratch.w.data());
    Complete(scratch.w.data(), strip.inputs);
    if (!inside) {
      MultiplyOutside(strip, i, scratch);
      continue;
    }
    MultiplyDense(strip, i, scratch);
    MultiplySparse(strip, i, scratch);
    if (scratch.factors != nullptr) Digest(strip, scratch);
  }
}

// Adds those of a strip, whose input channels x is given for.
template <typename X, typename Sum>
void StripModel<X, Sum>::Digest(const ModelPiece& strip, Scratch& scratch) const {
  const uint64_t first = strip.k0 - slab_.k0;
  uint32_t* digests = &scratch.digests[strip.n0 - scratch.digested_from];
  if constexpr (std::is_integral_v<X>) {
    const PairStripRow row{.x = &scratch.factors->narrow[first],
                           .sums = reinterpret_cast<int32_t*>(digests)};
    Multiply(kernels_, {&row, 1}, scratch.w.data(), strip.inputs);
  } else {
    kernels_.add_strip_digests(scratch.w.data(), strip.inputs, &scratch.factors->wide[first],
                               digests);
  }
}

// The same of all whole strips of a run, where the weights themselves are wanted of few input
// channels only. Returns how many output channels these have.
template <typename X, typename Sum>
uint64_t StripModel<X, Sum>::DigestCodesOf(const ModelPiece& run, Scratch& scratch) const {
  if (scratch.factors == nullptr || !rows_.dense.empty()) return 0;
  ModelPiece strips = run;
  strips.rows = run.rows / kStripChannels * kStripChannels;
  if (strips.rows == 0) return 0;
  if (!DigestStrips(strips, &scratch.factors->narrow[run.k0 - slab_.k0],
                    &scratch.digests[run.n0 - scratch.digested_from])) {
    return 0;
  }
  if constexpr (std::is_integral_v<X>) {
    static constexpr auto kOnes = [] {
      std::array<X, kRunInputs + 1> ones{};
      ones.fill(1);
      return ones;
    }();
    if (has_bases_) {
      DigestStrips(strips, kOnes.data(), reinterpret_cast<uint32_t*>(scratch.columns.data()));
    }
  }
  return strips.rows;
}

template <typename X, typename Sum>
bool StripModel<X, Sum>::DigestStrips(const ModelPiece& strips, const int16_t* factors,
                                      uint32_t* digests) const {
  ModelPiece strip = strips;
  strip.rows = kStripChannels;
  for (uint64_t i = 0; i < strips.rows; i += kStripChannels, strip.n0 += kStripChannels) {
    if (!DigestCodes(strip, factors, digests + i)) return false;
  }
  return true;
}

// What zero became, in all input channels of a segment.
template <typename X, typename Sum>
void StripModel<X, Sum>::AddBases(const ModelPiece& segment, Scratch& scratch) const {
  for (const SparseModelRow<X>& row : rows_.sparse) {
    AddBase(row.base, std::span(scratch.columns).first(segment.rows),
            &scratch.sums[row.m * kModelBlock]);
  }
  scratch.columns.fill(0);
}

template <typename X, typename Sum>
bool StripModel<X, Sum>::Touches(uint64_t begin, uint64_t end) const {
  return begin < slab_.k0 + slab_.inputs && end > slab_.k0;
}

template <typename X, typename Sum>
Status StripModel<X, Sum>::Run(uint64_t n0, std::span<float> y) const {
  Scratch scratch;
  return RunAll(n0, y, scratch);
}

template <typename X, typename Sum>
Status StripModel<X, Sum>::RunAndDigest(uint64_t n0, const DigestFactors& factors,
                                        std::span<float> y, std::span<uint32_t> digests) const {
  Scratch scratch;
  scratch.factors = &factors;
  scratch.digested_from = n0;
  scratch.digests.resize(CeilDiv(digests.size(), kModelBlock) * kModelBlock);
  PREPACK_TRY(RunAll(n0, y, scratch));
  std::ranges::copy(std::span(scratch.digests).first(digests.size()), digests.begin());
  return {};
}

template <typename X, typename Sum>
Status StripModel<X, Sum>::RunAll(uint64_t n0, std::span<float> y, Scratch& scratch) const {
  PREPACK_TRY(CheckOutput(y, m_, n0, packed_.n));
  const uint64_t width = y.size() / m_;
  scratch.w.resize(kStripSize);
  scratch.sums.assign(m_ * kModelBlock, Sum{0});
  scratch.columns.fill(0);
  scratch.dense.resize(rows_.dense.size());
  std::vector<float> results(m_ * kModelBlock);
  for (uint64_t first = 0; first < width; first += kModelBlock) {
    ModelPiece run{.n0 = n0 + first, .rows = std::min(kModelBlock, width - first)};
    for (uint64_t m = 0; m < m_; ++m) {
      std::fill_n(&results[m * kModelBlock], run.rows, 0.0F);
    }
    for (run.k0 = 0; run.k0 < packed_.k; run.k0 += run.inputs) {
      run.inputs = InputsFrom(run.k0);
      if (run.k0 % segment_ == 0) Begin(run, scratch.sums.data());
      AddRun(run, scratch);
      const uint64_t end = run.k0 + run.inputs;
      if (end % segment_ != 0 && end < packed_.k) continue;
      const uint64_t begin = run.k0 / segment_ * segment_;
      // Folds of zeros change nothing, except the first and the last, which add the bias.
      const bool counts = !zeros_outside_ || Touches(begin, end) || begin == 0 || end == packed_.k;
      if (!counts) continue;
      const ModelPiece segment{.n0 = run.n0, .rows = run.rows, .k0 = begin, .inputs = end - begin};
      if (has_bases_) AddBases(segment, scratch);
      Fold(segment, scratch.sums.data(), results.data());
      std::ranges::fill(scratch.sums, Sum{0});
    }
    for (uint64_t m = 0; m < m_; ++m) {
      RoundAll(dtype_, std::span(results).subspan(m * kModelBlock, run.rows),
               &y[m * width + first]);
    }
  }
  return {};
}

template <typename X, typename Sum>
void StripModel<X, Sum>::Weights(uint64_t n0, std::span<double> w) const {
  const uint64_t end = n0 + w.size() / packed_.k;
  std::vector<X> decoded(kStripSize);
  ModelPiece strip{.n0 = n0 / kStripChannels * kStripChannels};
  for (; strip.n0 < end; strip.n0 += kStripChannels) {
    strip.rows = std::min<uint64_t>(kStripChannels, packed_.n - strip.n0);
    for (strip.k0 = 0; strip.k0 < packed_.k; strip.k0 += strip.inputs) {
      strip.inputs = InputsFrom(strip.k0);
      Decode(strip, decoded.data());
      for (uint64_t n = std::max(n0, strip.n0); n < std::min(end, strip.n0 + strip.rows); ++n) {
        for (uint64_t k = strip.k0; k < strip.k0 + strip.inputs; ++k) {
          w[(n - n0) * packed_.k + k] =
              At(decoded.data(), k - strip.k0, n - strip.n0) * WeightFactor(n, k);
        }
      }
    }
  }
}

template class StripModel<float, float>;
template class StripModel<int16_t, int32_t>;

FloatModel::FloatModel(const PackedOperands& packed, const ModelInput& input, std::vector<float> x,
                       uint64_t segment)
    : StripModel(packed, input, std::move(x), std::vector<float>(input.m), segment) {}

FloatModel::FloatModel(const PackedOperands& packed, const ModelInput& input)
    : FloatModel(packed, input, {input.x.begin(), input.x.end()}, packed.k) {}

void FloatModel::CopyActivations(uint64_t m, std::span<double> row) const {
  std::ranges::copy(values().subspan(m * columns(), columns()), row.begin());
}

void FloatModel::Fold(const ModelPiece& segment, const float* sums, float* results) const {
  for (uint64_t row = 0; row < m(); ++row) {
    for (uint64_t i = 0; i < segment.rows; ++i) {
      const uint64_t at = row * kModelBlock + i;
      results[at] = sums[at] + Bias(segment.n0 + i);
    }
  }
}

namespace {

// The value that zero became in each row. Any base would do; this one makes rows sparse.
std::vector<int16_t> BaseOf(const QuantizedRows& x) {
  constexpr int64_t kLimit = 512;
  std::vector<int16_t> base(x.zero_points.size());
  for (size_t m = 0; m < base.size(); ++m) {
    const int64_t zero = x.zero_points[m];
    if (zero > -kLimit && zero < kLimit) base[m] = static_cast<int16_t>(zero);
  }
  return base;
}

}  // namespace

IntegerModel::IntegerModel(const PackedOperands& packed, const ModelInput& input, QuantizedRows x,
                           uint64_t segment)
    : StripModel(packed, input, std::move(x.values), BaseOf(x), segment),
      token_scales_(std::move(x.scales)),
      token_zeros_(std::move(x.zero_points)) {}

double IntegerModel::GroupScale(uint64_t n, uint64_t k) const {
  return static_cast<double>(scales()[k / packed().group_size * packed().n + n]);
}

void IntegerModel::FoldGroup(const ModelPiece& group, const int32_t* sums, float* results) const {
  const float* scale = &scales()[group.k0 / packed().group_size * packed().n + group.n0];
  const bool last = group.k0 + group.inputs == k();
  for (uint64_t row = 0; row < m(); ++row) {
    const float token_scale = token_scales_[row];
    const int32_t* from = sums + row * kModelBlock;
    float* to = results + row * kModelBlock;
    for (uint64_t i = 0; i < group.rows; ++i) {
      const float scaled = static_cast<float>(from[i]) * token_scale;
      to[i] += scaled * scale[i];
    }
    for (uint64_t i = 0; last && i < group.rows; ++i) to[i] += Bias(group.n0 + i);
  }
}

void IntegerModel::CopyActivations(uint64_t m, std::span<double> row) const {
  const auto scale = static_cast<double>(token_scales_[m]);
  const int64_t zero = token_zeros_[m];
  std::ranges::transform(values().subspan(m * columns(), columns()), row.begin(),
                         [=](int16_t value) { return static_cast<double>(value - zero) * scale; });
}

ChannelModel::ChannelModel(const PackedOperands& packed, const ModelInput& input, QuantizedRows x)
    : IntegerModel(packed, input, std::move(x), packed.k) {}

double ChannelModel::WeightFactor(uint64_t n, uint64_t /*k*/) const {
  return static_cast<double>(scales()[n]);
}

void ChannelModel::Fold(const ModelPiece& segment, const int32_t* sums, float* results) const {
  for (uint64_t row = 0; row < m(); ++row) {
    for (uint64_t i = 0; i < segment.rows; ++i) {
      const uint64_t at = row * kModelBlock + i;
      results[at] = Finish(row, segment.n0 + i, sums[at]);
    }
  }
}

void DecodeQuads(const Quads& packed, const ModelPiece& piece, int16_t* w) {
  const auto [bytes, stride] = packed;
  constexpr uint64_t kPairs = 2 * kStripChannels;  // of two input channels
  if (piece.rows == kStripChannels) {
    Kernels().widen_quads(reinterpret_cast<const int8_t*>(bytes), stride, CeilDiv(piece.inputs, 4),
                          w);
    return;
  }
  for (uint64_t j = 0; j < piece.inputs; j += 4) {
    const auto* quads = reinterpret_cast<const int8_t*>(bytes + j / 4 * stride);
    int16_t* first = w + j / 2 * kPairs;
    for (uint64_t i = 0; i < piece.rows; ++i) {
      first[2 * i] = Widened(quads[4 * i]);
      first[2 * i + 1] = Widened(quads[4 * i + 1]);
      first[kPairs + 2 * i] = Widened(quads[4 * i + 2]);
      first[kPairs + 2 * i + 1] = Widened(quads[4 * i + 3]);
    }
  }
}

bool DigestQuads(const Quads& packed, const ModelPiece& strip, const int16_t* factors,
                 uint32_t* digests) {
  if (strip.inputs % 4 != 0) return false;
  Kernels().digest_quads(reinterpret_cast<const int8_t*>(packed.bytes), packed.stride,
                         strip.inputs / 4, factors, digests);
  return true;
}

void DecodeRows(const int8_t* rows, uint64_t stride, const ModelPiece& piece, int16_t* w) {
  if (piece.inputs % 4 == 0) {
    std::array<int8_t, kRunInputs * kStripChannels> quads{};
    Kernels().transpose_words(reinterpret_cast<const std::byte*>(rows), stride, piece.rows,
                              piece.inputs / 4, reinterpret_cast<std::byte*>(quads.data()),
                              4 * kStripChannels);
    Kernels().widen_quads(quads.data(), 4 * kStripChannels, piece.inputs / 4, w);
    return;
  }
  for (uint64_t i = 0; i < piece.rows; ++i, rows += stride) {
    uint64_t j = 0;
    for (; j + 2 <= piece.inputs; j += 2) {
      int16_t* pair = w + j * kStripChannels + 2 * i;
      pair[0] = Widened(rows[j]);
      pair[1] = Widened(rows[j + 1]);
    }
    if (j < piece.inputs) w[j * kStripChannels + 2 * i] = Widened(rows[j]);
  }
}

void DigestRows(const int8_t* rows, uint64_t stride, const ModelPiece& strip,
                const int16_t* factors, uint32_t* digests) {
  for (uint64_t i = 0; i < strip.rows; ++i, rows += stride) {
    digests[i] += Kernels().digest_small_steps(rows, strip.inputs, factors);
  }
}

namespace {

const int8_t* RowsOf(const PackedOperands& packed, const ModelPiece& piece) {
  return reinterpret_cast<const int8_t*>(packed.weight.data()) + piece.n0 * packed.k + piece.k0;
}

}  // namespace

void DecodeRowsOfBytes(const PackedOperands& packed, const ModelPiece& piece, int16_t* w) {
  DecodeRows(RowsOf(packed, piece), packed.k, piece, w);
}

void DigestRowsOfBytes(const PackedOperands& packed, const ModelPiece& strip,
                       const int16_t* factors, uint32_t* digests) {
  const int8_t* rows = RowsOf(packed, strip);
  // The next run of the same rows.
  PrefetchRows<kIntoL2>(rows + strip.inputs, packed.k, strip.rows, strip.inputs);
  DigestRows(rows, packed.k, strip, factors, digests);
}

}  // namespace prepack
