// The second decoder of GPTQ on widths that do not divide 32, as GPTQModel stores them: in planes.

#include <cstdint>
#include <vector>

#include "formats/gptq_example.h"
#include "prepack/container/checkpoint.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/second_weights.h"

namespace prepack::testing {
namespace {

using PackedGptq = GptqExample;

PackedGptq RandomPlanes(uint32_t bits, bool symmetric) {
  PackedGptq x = {.n = 64, .k = 96, .bits = bits, .group_size = 32, .symmetric = symmetric};
  x.stored_zeros = true;
  x.planar = true;
  x.Randomize(bits, 0);
  // Powers of two from 1/8 to 1, so that products are exact.
  for (uint16_t& scale : x.scales) scale = static_cast<uint16_t>(0x3000 + (scale & 3U) * 0x400);
  return x;
}

// Rows [n0, n0 + rows), from the numbers that were packed.
std::vector<float> PlaneWeightsOf(const PackedGptq& x, uint64_t n0, uint64_t rows) {
  std::vector<float> weights;
  for (uint64_t n = n0; n < n0 + rows; ++n) {
    for (uint64_t k = 0; k < x.k; ++k) {
      const uint64_t at = static_cast<uint64_t>(x.group_of[k]) * x.n + n;
      const int steps = static_cast<int>(x.codes[k * x.n + n]) - static_cast<int>(x.zeros[at]);
      const int eighths = 1 << ((x.scales[at] - 0x3000) / 0x400);
      weights.push_back(static_cast<float>(steps * eighths) / 8);
    }
  }
  return weights;
}

std::vector<float> Decode(const TestCheckpoint& checkpoint, uint64_t k, uint64_t n0,
                          uint64_t rows) {
  TempFolder temp;
  checkpoint.Write(temp.path());
  const Checkpoint source = Value(Checkpoint::Open(temp.path()));
  return SecondWeights(Value(SecondDecoder::Make(source, "gptq")), kGptqModule, k, n0, rows);
}

TEST_CASE("codes and zero points in planes are decoded, whatever their width") {
  for (uint32_t bits = 2; bits <= 8; ++bits) {
    for (const bool symmetric : {true, false}) {
      CAPTURE(bits, symmetric);
      PackedGptq x = RandomPlanes(bits, symmetric);
      CHECK(Decode(MakeGptq(x), x.k, 0, x.n) == PlaneWeightsOf(x, 0, x.n));
      CHECK(Decode(MakeGptq(x), x.k, 29, 7) == PlaneWeightsOf(x, 29, 7));
      x.Shuffle(bits);
      CHECK(Decode(MakeGptq(x), x.k, 29, 7) == PlaneWeightsOf(x, 29, 7));
    }
  }
}

TEST_CASE("5, 6 and 7 bits lie in planes and store z, whatever the label says") {
  for (const uint32_t bits : {5U, 6U, 7U}) {
    for (const char* format : {"gptq", "gptq_v2"}) {
      CAPTURE(bits, format);
      const PackedGptq x = RandomPlanes(bits, false);
      TestCheckpoint checkpoint = MakeGptq(x);
      checkpoint.config["quantization_config"]["checkpoint_format"] = format;
      CHECK(Decode(checkpoint, x.k, 0, x.n) == PlaneWeightsOf(x, 0, x.n));
    }
  }
}

TEST_CASE("3 bits lie in planes in the format gptq_p alone") {
  PackedGptq x = RandomPlanes(3, false);
  x.planar = false;
  TestCheckpoint checkpoint = MakeGptq(x);
  CHECK(Decode(checkpoint, x.k, 0, x.n) == PlaneWeightsOf(x, 0, x.n));
  checkpoint.config["quantization_config"]["checkpoint_format"] = "gptq_p";
  CHECK(Decode(checkpoint, x.k, 0, x.n) != PlaneWeightsOf(x, 0, x.n));
}

TEST_CASE("fewer input channels than planes hold are an error") {
  PackedGptq x = {.n = 32, .k = 32, .bits = 3, .group_size = 32, .planar = true};
  x.Randomize(1, 0);
  TempFolder temp;
  MakeGptq(x).Write(temp.path());
  const Checkpoint source = Value(Checkpoint::Open(temp.path()));
  const SecondDecoder decoder = Value(SecondDecoder::Make(source, "gptq"));
  // Three words are 32 codes of 3 bits, or 16 of 6.
  DecodedRows decoded;
  CheckError(decoder.Decode(kGptqModule, 16, 0, 1, decoded), ErrorKind::kMalformed,
             "shapes of codes, scales and zero points disagree");
}

TEST_CASE("zero points of no group are not those of a symmetric module") {
  PackedGptq x = {.n = 32, .k = 32, .symmetric = false, .stored_zeros = true};
  x.Randomize(1, 0);
  TestCheckpoint checkpoint = MakeGptq(x);
  TestTensor& zeros = checkpoint.At(kGptqModule + ".qzeros");
  zeros.shape[0] = 0;
  zeros.bytes.clear();
  TempFolder temp;
  checkpoint.Write(temp.path());
  const Checkpoint source = Value(Checkpoint::Open(temp.path()));
  const SecondDecoder decoder = Value(SecondDecoder::Make(source, "gptq"));
  DecodedRows decoded;
  CHECK(decoder.Decode(kGptqModule, x.k, 0, x.n, decoded).kind() == ErrorKind::kMalformed);
}

}  // namespace
}  // namespace prepack::testing
