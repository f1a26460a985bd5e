#ifndef PREPACK_FORMATS_COMPRESSED_TENSORS_ARGS_H_
#define PREPACK_FORMATS_COMPRESSED_TENSORS_ARGS_H_

// How one group of modules quantizes its weights, or their inputs (mirrors compressed-tensors
// 0.19, quantization/quant_args.py: QuantizationArgs, and quant_scheme.py: PRESET_SCHEMES).

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/container/json.h"

namespace prepack::ct {

enum class Type : uint8_t { kInt, kFloat };
enum class Strategy : uint8_t {
  kTensor,
  kChannel,
  kGroup,
  kBlock,
  kToken,
  kTensorGroup,
  kAttentionHead,
};
enum class Dynamic : uint8_t { kNo, kYes, kLocal };
// kWeight only changed the order of calibration and leaves no trace in the files.
enum class ActOrder : uint8_t { kNone, kWeight, kGroup };

struct Args {
  uint32_t num_bits = 8;
  Type type = Type::kInt;
  bool symmetric = true;
  Strategy strategy = Strategy::kTensor;
  uint64_t group_size = 0;             // kGroup and kTensorGroup, else 0
  std::array<uint64_t, 2> block = {};  // kBlock: rows, columns
  Dynamic dynamic = Dynamic::kNo;
  ActOrder actorder = ActOrder::kNone;

  friend bool operator==(const Args&, const Args&) = default;
};

enum class Role : uint8_t { kWeights, kActivations };

// Parses and checks one QuantizationArgs object. Values that contradict each other are kMalformed;
// keys and keywords that no known version has are kUnsupported.
Result<Args> ParseArgs(const Json& args, Role role, std::string_view where);

// What the preset of a list-valued config group (before 0.5) stands for.
struct Preset {
  Args weights;
  std::optional<Args> input_activations;
};
// By name in any case; nullopt for one that is not known.
std::optional<Preset> FindPreset(std::string_view name);

std::string_view StrategyName(Strategy strategy);
// For people: "4-bit int group 128 asymmetric".
std::string DescribeArgs(const Args& args);

}  // namespace prepack::ct

#endif  // PREPACK_FORMATS_COMPRESSED_TENSORS_ARGS_H_
