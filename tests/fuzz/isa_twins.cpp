// Every version of every kernel writes the bytes that the scalar one writes, whatever the shape and
// whatever the content. Buffers are just as large as they must be, so the address sanitizer sees
// what reads or writes beyond.
//
// Input: the kernel, its shape, the seed of the content, then the first bytes of the content
// itself.

#include <algorithm>
#include <iterator>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "kernels/trials.h"
#include "prepack/base/isa.h"
#include "prepack/base/random.h"
#include "prepack/kernels/kernels.h"
#include "prepack/kernels/nibble_matrix.h"
#include "prepack/kernels/nibble_reorder.h"

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

// A kernel of kernels.inc.
void OneKernel(Input& input) {
  const KernelTrials& kernel = kKernelTrials[input.Below(std::size(kKernelTrials))];
  const size_t rows = input.Below(300);
  const size_t cols = input.Below(1200);
  const TrialShape shape{.rows = rows,
                         .cols = rows > 60 ? cols / 4 : cols,  // not too much work
                         .in_gap = 4 * input.Below(18),
                         .out_gap = 4 * input.Below(18),
                         .option = input.Byte()};
  const Trial trial = kernel.make(shape);
  Bytes content = Content(input, trial.in_bytes);
  trial.prepare(content.data());
  DemandTwins(kernel.kernel, trial.out_bytes,
              [&](Bytes& out) { trial.run(Kernels(), content.data(), out.data()); });
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

// What is made of kernels comes up less often than kernels do.
void One(Input& input) {
  const uint8_t choice = input.Byte();
  if (choice % 16 == 0) return NibbleMatrix(input);
  if (choice % 16 == 1) return Reorder(input);
  OneKernel(input);
}

}  // namespace
}  // namespace prepack::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  prepack::fuzz::Input input(data, size);
  prepack::fuzz::One(input);
  return 0;
}
