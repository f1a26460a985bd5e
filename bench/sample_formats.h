#pragma once

// How each quantizer stores a module: the config, the tensors, and what they hold. The numbers are
// made up, but sane: codes may be anything, scales are as large as those of trained weights.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "prepack/base/dtype.h"
#include "prepack/base/random.h"
#include "prepack/container/json.h"

namespace prepack::bench {

inline constexpr uint64_t kSampleGroup = 128;

enum class Content {
  kCodes,           // any bits
  kNibbles,         // four bits in a byte each: -8 ... 7
  kFp8Codes,        // e4m3 without NaN
  kExponents,       // bytes that are a scale as E8M0 and as e4m3
  kWeights,         // bf16, not quantized
  kNorms,           // bf16, about 1
  kScales,          // positive, about `step`
  kOffsets,         // -8 times the scales, for AWQ's GEMV-fast layout
  kZeroPoints,      // any bits
  kMiddle,          // GPTQ's symmetric zero point less one in every field of `bits` bits
  kGroups,          // kSampleGroup input channels in a row to each group
  kShuffledGroups,  // as many to each group, in any order
  kShape,           // that of the module
};

struct SampleTensor {
  std::string suffix;  // after the name of the module
  DType dtype = DType::kU8;
  std::vector<uint64_t> shape;
  Content content = Content::kCodes;
  uint32_t bits = 0;  // of kMiddle
  float step = 0;     // of kScales and kOffsets
};

// True for what makes up the size of a checkpoint, and what a sparse one leaves out.
bool IsBulk(Content content);

struct SampleFormat {
  std::string id;    // "gptq-act-order"
  std::string name;  // "gptq 4-bit act-order"
  uint32_t bits = 4;
  uint64_t k_multiple =
      kSampleGroup;            // K must be one of it, and N of the less of it and kSampleGroup
  Json (*config)() = nullptr;  // quantization_config
  std::vector<SampleTensor> (*tensors)(uint64_t n, uint64_t k) = nullptr;
};

// All that are read, most common first.
const std::vector<SampleFormat>& SampleFormats();

// That of gpt-oss, whose experts lie in tensors of a layer, none of them in a module's own.
const SampleFormat& StackedMxfp4();

// Fills a tensor piece by piece, so that its size does not matter.
class ContentFiller {
 public:
  // The same tensor of the same seed is the same everywhere. Scales and offsets of one seed belong
  // together.
  ContentFiller(const SampleTensor& tensor, uint64_t n, uint64_t k, uint64_t seed);
  // Fills the next piece: whole elements. kGroups, kShuffledGroups and kShape come in one.
  void Fill(std::span<std::byte> out);

 private:
  void FillScales(float factor, std::span<std::byte> out);
  void FillMiddle(std::span<std::byte> out);
  void FillGroups(std::span<std::byte> out);

  const SampleTensor& tensor_;
  uint64_t n_;
  uint64_t k_;
  SplitMix64 random_;
};

}  // namespace prepack::bench
