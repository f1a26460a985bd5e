// Every version of every kernel writes the bytes that the scalar one writes, whatever the shape and
// whatever the content. Buffers are just as large as they must be, so the address sanitizer sees
// what reads or writes beyond.
//
// Input: the kernel, its shape, the seed of the content, then the first bytes of the content
// itself.

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "prepack/base/isa.h"
#include "prepack/base/random.h"
#include "prepack/kernels/awq_gemv_fast.h"
#include "prepack/kernels/code_rows.h"
#include "prepack/kernels/nibble_columns.h"
#include "prepack/kernels/nibble_halves.h"
#include "prepack/kernels/nibble_matrix.h"
#include "prepack/kernels/nibble_pairs.h"
#include "prepack/kernels/nibble_reorder.h"
#include "prepack/kernels/nibble_transpose.h"
#include "prepack/kernels/nibble_transpose_wide.h"
#include "prepack/kernels/row_sums.h"
#include "prepack/kernels/strip_products.h"
#include "prepack/kernels/unit_transpose.h"

namespace prepack::fuzz {
namespace {

constexpr uint8_t kPoison = 0xA5;

using Bytes = std::vector<uint8_t>;

// Poison. Memory of no bytes has an address, too: kernels may add to it.
Bytes Buffer(size_t bytes) {
  Bytes buffer;
  buffer.reserve(std::max<size_t>(bytes, 1));
  buffer.resize(bytes, kPoison);
  return buffer;
}

// Numbers that come from the input at first and then from a seed of it.
Bytes Content(Input& input, size_t bytes) {
  SplitMix64 random(input.U64());
  Bytes content = Buffer(bytes);
  for (uint8_t& byte : content) byte = static_cast<uint8_t>(random.Next());
  const std::string_view given = input.Text().substr(0, bytes);
  std::ranges::copy(given, content.begin());
  return content;
}

size_t Strided(size_t rows, size_t row_bytes, size_t stride) {
  return rows == 0 ? 0 : (rows - 1) * stride + row_bytes;
}

// Calls work(out) for every instruction set, `out` being `bytes` of poison at first.
template <typename Work>
void DemandTwins(const char* kernel, size_t bytes, Work work) {
  Bytes expected = Buffer(bytes);
  {
    const ScopedIsa scalar(Isa::kScalar);
    work(expected);
  }
  for (const Isa isa : SupportedIsas()) {
    Bytes found = Buffer(bytes);
    const ScopedIsa scope(isa);
    work(found);
    Demand(found == expected, kernel, IsaName(isa));
  }
}

template <typename T>
T* As(Bytes& bytes) {
  return reinterpret_cast<T*>(bytes.data());
}
template <typename T>
const T* As(const Bytes& bytes) {
  return reinterpret_cast<const T*>(bytes.data());
}
const std::byte* Raw(const Bytes& bytes) {
  return As<std::byte>(bytes);
}

void GemvFast(Input& input) {
  const size_t chunks = input.Below(20);
  const size_t row = input.Below(kGemvFastRows);
  const Bytes stored = Content(input, (chunks + 1) * kGemvFastChunkBytes);
  DemandTwins("awq_gemv_fast", chunks * kGemvFastRowBytes, [&](Bytes& out) {
    UnpackGemvFastFor()(stored.data() + row * kGemvFastRowBytes, chunks, out.data());
  });
}

void CodeRows(Input& input) {
  CodePacking packing{.bits = static_cast<uint32_t>(input.Between(2, 8)), .planar = input.Bool()};
  packing.planar = packing.planar || (packing.bits >= 5 && packing.bits <= 7);
  const CodeUnit unit = UnitOf(packing);
  const size_t units = input.Below(6);
  const size_t channels = input.Below(150);
  const Bytes stored = Content(input, units * unit.stored_words * channels * 4);
  DemandTwins("code_rows", units * unit.wide_words * channels * 4, [&](Bytes& out) {
    WidenCodesFor()(packing, As<uint32_t>(stored), units, channels, As<uint32_t>(out));
  });
}

void JoinColumns(Input& input) {
  const size_t channels = kColumnChannels * input.Between(1, 40);
  const size_t rows = input.Between(1, 6);
  const size_t words_stride = channels + input.Below(4);
  const size_t column_stride = ColumnBytes(channels) + input.Below(70);
  std::vector<uint32_t> picks(8 * input.Below(6));
  for (uint32_t& pick : picks) pick = static_cast<uint32_t>(input.Below(8 * rows));
  const Bytes words = Content(input, Strided(rows, 4 * channels, 4 * words_stride));
  const size_t joined = Strided(picks.size() / 8, 4 * channels, 4 * words_stride);
  DemandTwins("nibble_columns: split and join", joined, [&](Bytes& out) {
    const NibbleColumnKernels& kernels = NibbleColumnKernelsFor();
    Bytes columns = Buffer(Strided(8 * rows, ColumnBytes(channels), column_stride));
    kernels.split(Raw(words), 4 * words_stride, rows, channels, columns.data(), column_stride);
    kernels.join(columns.data(), column_stride, picks, channels, As<uint32_t>(out), words_stride);
  });
}

void JoinAwq(Input& input) {
  const size_t channels = kColumnChannels * input.Between(1, 40);
  const size_t rows = input.Between(1, 6);
  const size_t words_stride = channels + input.Below(4);
  const size_t column_stride = ColumnBytes(channels) + 4 * input.Below(20);
  const Bytes columns = Content(input, Strided(8 * rows, ColumnBytes(channels), column_stride));
  const size_t joined = Strided(rows, 4 * channels, 4 * words_stride);
  DemandTwins("nibble_columns: join_awq", joined, [&](Bytes& out) {
    NibbleColumnKernelsFor().join_awq(columns.data(), column_stride, rows, channels,
                                      As<uint32_t>(out), words_stride);
  });
}

void NibbleMatrix(Input& input) {
  const size_t rows = 2 * input.Below(150);
  const size_t cols = input.Below(300);
  const size_t row_bytes = (cols + 1) / 2 + input.Below(70);
  const size_t column_bytes = rows / 2 + input.Below(70);
  const uint8_t mask = input.Bool() ? 0x88 : 0;
  const size_t size_of_rows = Strided(rows, (cols + 1) / 2, row_bytes);
  const size_t size_of_columns = rows == 0 ? 0 : Strided(cols, rows / 2, column_bytes);
  const bool back = input.Bool();
  const Bytes content = Content(input, back ? size_of_columns : size_of_rows);
  DemandTwins("nibble_matrix", back ? size_of_rows : size_of_columns, [&](Bytes& out) {
    if (back) {
      NibbleColumnsToRows(content.data(), column_bytes, rows, cols, mask, out.data(), row_bytes);
    } else {
      NibbleRowsToColumns(content.data(), row_bytes, rows, cols, mask, out.data(), column_bytes);
    }
  });
}

void Pairs(Input& input) {
  const size_t cols = kPairCols * input.Between(1, kMostPairCols / kPairCols);
  const size_t blocks = input.Below(4);
  const size_t row_bytes = blocks * cols / 2 + input.Below(70);
  const size_t size_of_rows = Strided(blocks == 0 ? 0 : kPairRows, blocks * cols / 2, row_bytes);
  const bool back = input.Bool();
  const Bytes content = Content(input, back ? blocks * PairBlockBytes(cols) : size_of_rows);
  const size_t written = back ? size_of_rows : blocks * PairBlockBytes(cols);
  DemandTwins("nibble_pairs", written, [&](Bytes& out) {
    if (back) {
      NibblePairsFor().pairs_to_rows(content.data(), cols, blocks, row_bytes, out.data());
    } else {
      NibblePairsFor().rows_to_pairs(content.data(), row_bytes, cols, blocks, out.data());
    }
  });
}

void Halves(Input& input) {
  const size_t cols = 2 * input.Below(1200);
  // Rows that share sets of the cache go another way.
  const size_t row_bytes = input.Bool() ? 2048 : cols / 2 + input.Below(70);
  const size_t size_of_rows = Strided(cols == 0 ? 0 : kHalvesRows, cols / 2, row_bytes);
  const bool back = input.Bool();
  const Bytes content = Content(input, back ? HalvesBytes(cols) : size_of_rows);
  DemandTwins("nibble_halves", back ? size_of_rows : HalvesBytes(cols), [&](Bytes& out) {
    if (back) {
      NibbleHalvesFor().halves_to_rows(content.data(), cols, row_bytes, out.data());
    } else {
      NibbleHalvesFor().rows_to_halves(content.data(), row_bytes, cols, out.data());
    }
  });
}

// Blocks of 16 rows, and of 64.
void NibbleBlocks(Input& input) {
  const bool wide = input.Bool();
  const size_t rows = wide ? kWideTransposeRows : kTransposeRows;
  const size_t cols = 2 * input.Below(150);
  const size_t row_bytes = cols / 2 + input.Below(70);
  const size_t column_stride = rows / 2 + input.Below(70);
  const uint8_t mask = input.Bool() ? 0x88 : 0;
  const bool back = input.Bool();
  const size_t size_of_rows = Strided(cols == 0 ? 0 : rows, cols / 2, row_bytes);
  const size_t size_of_columns = Strided(cols, rows / 2, column_stride);
  const Bytes content = Content(input, back ? size_of_columns : size_of_rows);
  DemandTwins("nibble_transpose", back ? size_of_rows : size_of_columns, [&](Bytes& out) {
    const NibbleTranspose& narrow = NibbleTransposeFor();
    const WideNibbleTranspose& wider = WideNibbleTransposeFor();
    const uint8_t* in = content.data();
    if (wide && back) wider.columns_to_rows(in, column_stride, cols, mask, row_bytes, out.data());
    if (wide && !back) wider.rows_to_columns(in, row_bytes, cols, mask, out.data(), column_stride);
    if (!wide && back) narrow.columns_to_rows(in, column_stride, cols, row_bytes, out.data());
    if (!wide && !back) narrow.rows_to_columns(in, row_bytes, cols, out.data(), column_stride);
  });
}

void Reorder(Input& input) {
  const size_t word_rows = input.Between(1, 24);
  const size_t channels = input.Between(1, 150);
  const size_t first = input.Below(word_rows + 1);
  std::vector<uint32_t> order(2 * input.Below(200));  // an odd one leaves half a byte open
  for (uint32_t& pick : order) pick = static_cast<uint32_t>(input.Below(8 * word_rows));
  const size_t row_bytes = order.size() / 2 + input.Below(70);
  const Bytes words = Content(input, 4 * word_rows * channels);
  const size_t written = Strided(order.empty() ? 0 : channels, order.size() / 2, row_bytes);
  DemandTwins("nibble_reorder", written, [&](Bytes& out) {
    NibbleReorder reorder(word_rows, channels);
    reorder.Put(0, first, Raw(words), 4 * channels);
    reorder.Put(first, word_rows - first, Raw(words) + 4 * channels * first, 4 * channels);
    reorder.Take(order, As<std::byte>(out), row_bytes);
  });
}

void RowSums(Input& input) {
  const size_t rows = input.Below(20);
  const size_t cols = input.Below(1200);
  const size_t stride = cols + input.Below(70);
  const Bytes codes = Content(input, Strided(rows, cols, stride));
  DemandTwins("row_sums", rows * 4, [&](Bytes& out) {
    SumRowsFor()(As<int8_t>(codes), stride, rows, cols, As<int32_t>(out));
  });
}

void Transpose(Input& input) {
  const size_t unit = size_t{1} << input.Below(4);
  const size_t rows = input.Below(300);
  const size_t cols = input.Below(300);
  const size_t in_stride = cols * unit + input.Below(70);
  const size_t out_stride = rows * unit + input.Below(70);
  const Bytes in = Content(input, Strided(rows, cols * unit, in_stride));
  const size_t written = rows == 0 ? 0 : Strided(cols, rows * unit, out_stride);
  DemandTwins("unit_transpose", written, [&](Bytes& out) {
    TransposeUnitsFor(unit)(Raw(in), in_stride, rows, cols, As<std::byte>(out), out_stride);
  });
}

void TransposeAndSum(Input& input) {
  const size_t rows = input.Below(300);
  const size_t cols = input.Below(300);
  const size_t in_stride = cols * 4 + input.Below(70);
  const size_t out_stride = rows * 4 + input.Below(70);
  const Bytes in = Content(input, Strided(rows, cols * 4, in_stride));
  const size_t written = rows == 0 ? 0 : Strided(cols, rows * 4, out_stride);
  DemandTwins("unit_transpose: sums", written + rows * 4, [&](Bytes& out) {
    Bytes transposed = Buffer(written);
    Bytes sums = Buffer(rows * 4);
    UnitTransposeFor().summed_words(Raw(in), in_stride, rows, cols, As<std::byte>(transposed),
                                    out_stride, As<int32_t>(sums));
    std::ranges::copy(sums, std::ranges::copy(transposed, out.begin()).out);
  });
}

// Numbers without NaN: which of two NaN comes out of an addition is up to the compiler.
std::vector<float> Floats(Input& input, size_t count) {
  const Bytes bytes = Content(input, count * sizeof(float));
  std::vector<float> floats(std::max<size_t>(count, 1));
  if (count > 0) std::memcpy(floats.data(), bytes.data(), bytes.size());
  for (float& value : floats) value = std::isfinite(value) ? std::fmod(value, 0x1p40F) : 1;
  return floats;
}

void FloatProducts(Input& input) {
  const size_t rows = input.Below(20);
  const size_t count = input.Below(80);
  const std::vector<float> x = Floats(input, rows * count);
  const std::vector<float> w = Floats(input, count * kStripChannels);
  const size_t weights = count * kStripChannels;
  DemandTwins("strip_products: floats", rows * kStripChannels * 4, [&](Bytes& out) {
    std::vector<FloatStripRow> strip;
    for (size_t r = 0; r < rows; ++r) {
      strip.push_back({.x = x.data() + r * count, .sums = As<float>(out) + r * kStripChannels});
    }
    StripProductsFor().floats(strip, w.data(), count);
  });
  DemandTwins("strip_products: fuse", weights * 4, [&](Bytes& out) {
    StripProductsFor().fuse(w.data(), w.data(), weights, As<float>(out));
  });
}

void PairProducts(Input& input) {
  const size_t rows = input.Below(20);
  const size_t count = input.Below(80);
  Bytes x = Content(input, rows * 2 * count * 2);
  for (size_t i = 1; i < x.size(); i += 4) {  // no two neighbours of −2^15
    if (x[i] == 0x80 && x[i - 1] == 0) x[i] = 0x81;
  }
  const Bytes w = Content(input, 2 * count * kStripChannels * 2);
  DemandTwins("strip_products: pairs", rows * kStripChannels * 4, [&](Bytes& out) {
    std::vector<PairStripRow> strip;
    for (size_t r = 0; r < rows; ++r) {
      strip.push_back(
          {.x = As<int16_t>(x) + r * 2 * count, .sums = As<int32_t>(out) + r * kStripChannels});
    }
    StripProductsFor().pairs(strip, As<int16_t>(w), count);
  });
}

using Kernel = void (*)(Input& input);
constexpr Kernel kKernels[] = {GemvFast,  CodeRows,      JoinColumns,  JoinAwq, NibbleMatrix,
                               Pairs,     NibbleBlocks,  Reorder,      RowSums, TransposeAndSum,
                               Transpose, FloatProducts, PairProducts, Halves};

}  // namespace
}  // namespace prepack::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  prepack::fuzz::Input input(data, size);
  input.OneOf(prepack::fuzz::kKernels)(input);
  return 0;
}
