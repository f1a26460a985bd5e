#include <algorithm>
#include <vector>

#include "catch.h"
#include "check/check_run.h"

namespace prepack::testing {
namespace {

constexpr uint64_t kTokenRows = 64;

// A sound module, an embedding, a head and three norms.
TestCheckpoint WithPlainTensors() {
  TestCheckpoint checkpoint = WideExample();
  checkpoint.config["tie_word_embeddings"] = false;
  SplitMix64 random(3);
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    std::vector<std::byte> bytes(kTokenRows * kWideK * 2);
    for (size_t i = 0; i < bytes.size() / 2; ++i) {
      PutBF16(bytes, i, static_cast<float>(0.02 * random.Gaussian()));
    }
    checkpoint.tensors.push_back({name, "BF16", {kTokenRows, kWideK}, bytes});
  }
  for (const char* name : {"model.norm.weight", "model.layers.0.input_layernorm.weight",
                           "model.layers.0.post_attention_layernorm.weight"}) {
    std::vector<std::byte> bytes(kWideK * 2);
    for (size_t i = 0; i < kWideK; ++i) {
      PutBF16(bytes, i, static_cast<float>(1 + 0.1 * random.Gaussian()));
    }
    checkpoint.tensors.push_back({name, "BF16", {kWideK}, bytes});
  }
  return checkpoint;
}

TEST_CASE("sound tensors that are not quantized have no findings") {
  RequireSound(RunCheck(WithPlainTensors()));
}

TEST_CASE("tensors of zeros are found") {
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"}) {
    CAPTURE(name);
    TestCheckpoint checkpoint = WithPlainTensors();
    std::ranges::fill(checkpoint.At(name).bytes, std::byte{0});
    RequireOnly(RunCheck(checkpoint), "value-zero", "100 % of the tensor is zero",
                CheckVerdict::kWarnings);
  }
  TestCheckpoint half = WithPlainTensors();
  std::vector<std::byte>& bytes = half.At("model.embed_tokens.weight").bytes;
  std::fill_n(bytes.begin(), bytes.size() / 2, std::byte{0});
  RequireOnly(RunCheck(half), "value-zero", "50 % of the tensor is zero", CheckVerdict::kWarnings);
  // Rows of padding are ordinary, and so are zeros of what is added to 1.
  TestCheckpoint padded = WithPlainTensors();
  std::fill_n(padded.At("lm_head.weight").bytes.begin(), 4 * kWideK * 2, std::byte{0});
  RequireSound(RunCheck(padded));
  TestCheckpoint gemma = WithPlainTensors();
  gemma.config["model_type"] = "gemma3_text";
  std::ranges::fill(gemma.At("model.norm.weight").bytes, std::byte{0});
  RequireSound(RunCheck(gemma));
}

TEST_CASE("the bytes of another dtype are found") {
  TestCheckpoint checkpoint = WithPlainTensors();
  std::vector<std::byte>& bytes = checkpoint.At("model.embed_tokens.weight").bytes;
  for (size_t i = 0; i < bytes.size() / 2; ++i) {
    const float value =
        BF16ToF32(static_cast<uint16_t>(std::to_integer<unsigned>(bytes[2 * i]) |
                                        std::to_integer<unsigned>(bytes[2 * i + 1]) << 8));
    const uint16_t half = F32ToF16(value);
    bytes[2 * i] = static_cast<std::byte>(half & 0xFFU);
    bytes[2 * i + 1] = static_cast<std::byte>(half >> 8);
  }
  RequireOnly(RunCheck(checkpoint), "value-unlike-weights", "the exponents of the values as BF16",
              CheckVerdict::kWarnings);
  TestCheckpoint narrowed = WithPlainTensors();
  narrowed.At("lm_head.weight").dtype = "F16";
  RequireOnly(RunCheck(narrowed), "value-unlike-weights", "the exponents of the values as F16",
              CheckVerdict::kWarnings);
}

TEST_CASE("a norm far from the others is found") {
  TestCheckpoint checkpoint = WithPlainTensors();
  std::vector<std::byte>& bytes = checkpoint.At("model.norm.weight").bytes;
  for (size_t i = 0; i < kWideK; ++i) PutBF16(bytes, i, 1000 + static_cast<float>(i));
  RequireOnly(RunCheck(checkpoint), "norm-size", "times those of the other norms",
              CheckVerdict::kWarnings);
}

}  // namespace
}  // namespace prepack::testing
