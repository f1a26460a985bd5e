// Compares what all versions of the bricks write with what the scalar twins write, on a machine
// without an operating system: for emulators of whole machines, see `run`. Says the result through
// the first serial port.

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "prepack/base/isa.h"
#include "prepack/base/random.h"
#include "prepack/kernels/kernels.h"

// What the compiler calls. The pointers are volatile so that it does not call it from here.
extern "C" {

void* memcpy(void* to, const void* from, size_t count) {
  auto* bytes = static_cast<volatile uint8_t*>(to);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<const uint8_t*>(from)[i];
  return to;
}

void* memmove(void* to, const void* from, size_t count) {
  if (to <= from) return memcpy(to, from, count);
  auto* bytes = static_cast<volatile uint8_t*>(to);
  for (; count > 0; --count) bytes[count - 1] = static_cast<const uint8_t*>(from)[count - 1];
  return to;
}

void* memset(void* to, int value, size_t count) {
  auto* bytes = static_cast<volatile uint8_t*>(to);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(value);
  return to;
}

// Of a kernel that is not tested here.
float fmaf(float a, float b, float c) {
  return a * b + c;
}

}  // extern "C"

namespace prepack {
namespace {

constexpr uint16_t kSerialPort = 0x3F8;

void WritePort(uint16_t port, uint8_t value) {
  asm volatile("outb %0, %1" ::"a"(value), "Nd"(port));
}

uint8_t ReadPort(uint16_t port) {
  uint8_t value = 0;
  asm volatile("inb %1, %0" : "=a"(value) : "Nd"(port));
  return value;
}

void WaitForSerialPort(uint8_t state) {
  while ((ReadPort(kSerialPort + 5) & state) == 0) {
  }
}

void Say(const char* text) {
  constexpr uint8_t kRoomForOne = 0x20;
  for (; *text != 0; ++text) {
    WaitForSerialPort(kRoomForOne);
    WritePort(kSerialPort, static_cast<uint8_t>(*text));
  }
}

void Say(size_t number) {
  char digits[21] = {};
  size_t i = sizeof digits - 1;
  do {
    digits[--i] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  Say(digits + i);
}

// Ends the emulator: Bochs listens here.
void ShutDown() {
  constexpr uint8_t kAllSent = 0x40;
  WaitForSerialPort(kAllSent);
  for (const char* text = "Shutdown"; *text != 0; ++text) {
    WritePort(0x8900, static_cast<uint8_t>(*text));
  }
}

// Memory of the test. As words, too, which are four bytes each.
constexpr size_t kBytes = size_t{1} << 18;
struct Buffer {
  alignas(64) uint8_t bytes[kBytes];
  std::byte* data() { return reinterpret_cast<std::byte*>(bytes); }
  uint32_t* words() { return reinterpret_cast<uint32_t*>(bytes); }
  int32_t* sums() { return reinterpret_cast<int32_t*>(bytes); }
  int8_t* codes() { return reinterpret_cast<int8_t*>(bytes); }
};
Buffer input;
Buffer columns;
Buffer found;
Buffer expected;
size_t checks = 0;
size_t failures = 0;

void FillInput() {
  SplitMix64 random(1);
  for (uint8_t& byte : input.bytes) byte = static_cast<uint8_t>(random.Next());
}

void Poison() {
  memset(found.bytes, 0xA5, kBytes);
  memset(expected.bytes, 0xA5, kBytes);
}

// Compares all of `found` with `expected`, and poisons them again.
void Check(const char* what, Isa isa, size_t a, size_t b = 0, size_t c = 0) {
  ++checks;
  size_t i = 0;
  while (i < kBytes && found.bytes[i] == expected.bytes[i]) ++i;
  Poison();
  if (i == kBytes) return;
  ++failures;
  Say("failed: ");
  Say(what);
  for (const size_t number : {static_cast<size_t>(isa), a, b, c, i}) {
    Say(" ");
    Say(number);
  }
  Say("\n");
}

void CheckNibbles(Isa isa, size_t cols, size_t stride) {
  const size_t row_bytes = cols / 2 + 3;
  KernelsFor(isa).rows_to_words(input.bytes, row_bytes, cols, found.bytes, stride);
  KernelsFor(Isa::kScalar).rows_to_words(input.bytes, row_bytes, cols, expected.bytes, stride);
  Check("nibbles to columns", isa, cols, stride);
  KernelsFor(isa).words_to_rows(input.bytes, stride, cols, row_bytes, found.bytes);
  KernelsFor(Isa::kScalar).words_to_rows(input.bytes, stride, cols, row_bytes, expected.bytes);
  Check("nibbles to rows", isa, cols, stride);
}

void CheckUnits(Isa isa, size_t unit, size_t rows, size_t cols, size_t gap) {
  const size_t in_stride = cols * unit + gap;
  const size_t out_stride = rows * unit + 1;
  TransposeUnits(KernelsFor(isa), unit)(input.data(), in_stride, rows, cols, found.data(),
                                        out_stride);
  TransposeUnits(KernelsFor(Isa::kScalar), unit)(input.data(), in_stride, rows, cols,
                                                 expected.data(), out_stride);
  Check("units", isa, unit, rows, cols);
}

void CheckSums(Isa isa, size_t rows, size_t cols) {
  constexpr size_t kStride = 500;
  KernelsFor(isa).sum_rows(input.codes(), kStride, rows, cols, found.sums());
  KernelsFor(Isa::kScalar).sum_rows(input.codes(), kStride, rows, cols, expected.sums());
  Check("sums", isa, rows, cols);
}

void CheckWiden(Isa isa, const CodePacking& packing) {
  constexpr size_t kUnits = 2;
  constexpr size_t kChannels = 77;
  KernelsFor(isa).widen_codes(packing, input.words(), kUnits, kChannels, found.words());
  KernelsFor(Isa::kScalar).widen_codes(packing, input.words(), kUnits, kChannels, expected.words());
  Check("widen", isa, packing.bits, packing.planar ? 1 : 0);
}

void CheckColumns(Isa isa, size_t channels) {
  constexpr uint32_t kPicks[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 15, 8, 9, 7, 13, 2};
  const size_t stride = ColumnBytes(channels) + 1;
  for (const Isa of : {isa, Isa::kScalar}) {
    const KernelTable& kernels = KernelsFor(of);
    Buffer& out = of == isa ? found : expected;
    kernels.split_columns(input.data(), 4 * channels, 2, channels, columns.bytes, stride);
    kernels.join_columns(columns.bytes, stride, kPicks, std::size(kPicks) / 8, channels,
                         out.words(), channels + 1);
    kernels.join_awq_columns(input.bytes, stride, 2, channels, out.words() + 3 * channels,
                             channels + 1);
    kernels.split_ordered_columns(input.data(), 4 * channels, 2, channels,
                                  out.bytes + 24 * channels, stride);
  }
  Check("columns", isa, channels);
}

void CheckAll(Isa isa) {
  for (const size_t cols : {2, 126, 128, 386}) {
    for (const size_t stride : {8, 9, 64}) CheckNibbles(isa, cols, stride);
  }
  for (const size_t unit : {1, 2, 4}) {
    for (const size_t rows : {15, 64, 70}) {
      for (const size_t cols : {15, 16, 75}) {
        for (const size_t gap : {0, 1000}) CheckUnits(isa, unit, rows, cols, gap);
      }
    }
  }
  for (const size_t rows : {1, 8, 13}) {
    for (const size_t cols : {2, 128, 450}) CheckSums(isa, rows, cols);
  }
  for (const size_t chunks : {1, 2, 5}) {
    KernelsFor(isa).unpack_gemv_fast(input.bytes, chunks, found.bytes);
    KernelsFor(Isa::kScalar).unpack_gemv_fast(input.bytes, chunks, expected.bytes);
    Check("gemv_fast", isa, chunks);
  }
  for (const uint32_t bits : {2, 3, 4, 8}) CheckWiden(isa, {.bits = bits, .planar = false});
  for (const uint32_t bits : {3, 5, 6, 7}) CheckWiden(isa, {.bits = bits, .planar = true});
  for (const size_t channels : {8, 128, 200, 264}) CheckColumns(isa, channels);
}

}  // namespace
}  // namespace prepack

extern "C" void Main() {
  using namespace prepack;  // NOLINT(google-build-using-namespace): boot.S calls it
  constexpr uint16_t kLineControl = kSerialPort + 3;
  constexpr uint8_t kEightBits = 3;
  WritePort(kLineControl, kEightBits);
  FillInput();
  Poison();
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vbmi}) CheckAll(isa);
  Say(checks - failures);
  Say(" passed, ");
  Say(failures);
  Say(" failed\n");
  ShutDown();
}
