// oneDNN 3.13: reorders of 8-bit integers and of bf16 to 4-bit integers succeed and write nothing.
//
//   g++ -std=c++17 -I ONEDNN/include onednn_reorder.cpp -L ONEDNN/lib -ldnnl -o onednn_reorder
//   LD_LIBRARY_PATH=ONEDNN/lib ./onednn_reorder
//
// Exit code 1 if there is a fault.

#include <cstdint>
#include <cstdio>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

namespace {

using dnnl::memory;

// Codes 1, 2, … 7, 1, … of `type`, reordered to 4 bits: how many nibbles are right.
template <typename T>
int RightNibbles(dnnl::engine& engine, memory::data_type type, memory::data_type to,
                 T (*make)(int)) {
  constexpr int kCount = 64;
  std::vector<T> source(kCount);
  for (int i = 0; i < kCount; ++i) source[i] = make(i % 7 + 1);
  std::vector<uint8_t> packed(kCount / 2, 0xEE);
  const memory::dims dims = {8, 8};
  memory from({dims, type, memory::format_tag::ab}, engine, source.data());
  memory into({dims, to, memory::format_tag::ab}, engine, packed.data());
  dnnl::stream stream(engine);
  dnnl::reorder(from, into).execute(stream, from, into);
  stream.wait();
  int right = 0;
  for (int i = 0; i < kCount; ++i) right += (packed[i / 2] >> 4 * (i % 2) & 15) == i % 7 + 1;
  return right;
}

int8_t AsInt8(int value) {
  return static_cast<int8_t>(value);
}
float AsFloat(int value) {
  return static_cast<float>(value);
}
// Whole numbers below 256 are exact in bf16: the upper half of the float.
uint16_t AsBf16(int value) {
  const auto number = static_cast<float>(value);
  uint32_t bits;
  __builtin_memcpy(&bits, &number, sizeof(bits));
  return static_cast<uint16_t>(bits >> 16);
}

}  // namespace

int main() {
  const dnnl_version_t* version = dnnl_version();
  std::printf("oneDNN %d.%d.%d\n", version->major, version->minor, version->patch);
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  int faults = 0;
  for (const auto [to, name] :
       {std::pair(memory::data_type::s4, "s4"), std::pair(memory::data_type::u4, "u4")}) {
    const int f32 = RightNibbles(engine, memory::data_type::f32, to, AsFloat);
    const int s8 = RightNibbles(engine, memory::data_type::s8, to, AsInt8);
    const int bf16 = RightNibbles(engine, memory::data_type::bf16, to, AsBf16);
    std::printf("to %s: %d of 64 nibbles are right from f32, %d from s8, %d from bf16\n", name, f32,
                s8, bf16);
    faults += f32 != 64 || s8 != 64 || bf16 != 64;
  }
  return faults == 0 ? 0 : 1;
}
