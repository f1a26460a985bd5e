#include "prepack/formats/compressed_tensors/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/container/json_fields.h"
#include "prepack/formats/finding.h"

namespace prepack::ct {

namespace {

constexpr std::array<std::string_view, 12> kArgsKeys = {
    "num_bits", "type",     "symmetric",   "strategy", "group_size", "block_structure",
    "dynamic",  "actorder", "scale_dtype", "zp_dtype", "observer",   "observer_kwargs"};

constexpr std::array<std::pair<std::string_view, Strategy>, 7> kStrategies = {{
    {"tensor", Strategy::kTensor},
    {"channel", Strategy::kChannel},
    {"group", Strategy::kGroup},
    {"block", Strategy::kBlock},
    {"token", Strategy::kToken},
    {"tensor_group", Strategy::kTensorGroup},
    {"attn_head", Strategy::kAttentionHead},
}};

bool HasGroups(Strategy strategy) {
  return strategy == Strategy::kGroup || strategy == Strategy::kTensorGroup;
}

Status Invalid(std::string_view where, std::string_view key, std::string_view what) {
  return Malformed(FieldPath(where, key), what).Id(FindingId("config-field-invalid"));
}

Result<Type> ParseType(const Json& args, std::string_view where) {
  PREPACK_TRY_ASSIGN(const std::optional<std::string> text, OptionalString(args, "type", where));
  const std::string type = LowerCase(text.value_or("int"));
  if (type == "int") return Type::kInt;
  if (type == "float") return Type::kFloat;
  return UnknownKeyword(where, "type", type, "int or float");
}

Result<uint32_t> ParseBits(const Json& args, Type type, std::string_view where) {
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> bits, OptionalInt(args, "num_bits", where));
  const int64_t value = bits.value_or(8);
  const bool sound = type == Type::kInt ? value >= 1 && value <= 8 : value == 4 || value == 8;
  if (sound) return static_cast<uint32_t>(value);
  if (type == Type::kFloat && value == 6) {
    return Unsupported(FieldPath(where, "num_bits"), "MXFP6 weights are not supported")
        .Found("6-bit float")
        .Expected("4 or 8 for float")
        .Hint("Quantize the float model to MXFP4, NVFP4, FP8 or integers")
        .Id(FindingId("scheme-unsupported"));
  }
  return Invalid(where, "num_bits", "the number of bits is out of range")
      .Found(std::to_string(value))
      .Expected(type == Type::kInt ? "1 to 8 for int" : "4 or 8 for float");
}

// group_size is null, a positive number, or -1 for "the whole channel".
Result<std::optional<int64_t>> ParseGroupSize(const Json& args, std::string_view where) {
  Result<std::optional<int64_t>> size = OptionalInt(args, "group_size", where);
  if (!size.ok() || !*size || **size > 0 || **size == -1) return size;
  return Invalid(where, "group_size", "the group size is not positive")
      .Found(std::to_string(**size))
      .Expected("a positive number, or -1 for one group per channel");
}

Result<Strategy> ParseStrategy(const Json& args, std::optional<int64_t> group_size,
                               std::string_view where) {
  PREPACK_TRY_ASSIGN(const std::optional<std::string> text,
                     OptionalString(args, "strategy", where));
  if (!text) {
    if (!group_size) return Strategy::kTensor;
    return *group_size == -1 ? Strategy::kChannel : Strategy::kGroup;
  }
  const std::string name = LowerCase(*text);
  for (const auto& [known, strategy] : kStrategies) {
    if (known == name) return strategy;
  }
  return UnknownKeyword(where, "strategy", name,
                        "tensor, channel, group, block, token, tensor_group or attn_head");
}

Result<Dynamic> ParseDynamic(const Json& args, std::string_view where) {
  const Json* value = JsonMember(args, "dynamic");
  if (value == nullptr) return Dynamic::kNo;
  if (value->is_boolean()) return value->get<bool>() ? Dynamic::kYes : Dynamic::kNo;
  if (value->is_string() && LowerCase(value->get<std::string>()) == "local") {
    return Dynamic::kLocal;
  }
  return Invalid(where, "dynamic", "the field has the wrong type")
      .Found(ShowJson(*value))
      .Expected("true, false or \"local\"");
}

Result<ActOrder> ParseActOrder(const Json& args, std::string_view where) {
  const Json* value = JsonMember(args, "actorder");
  if (value == nullptr) return ActOrder::kNone;
  if (value->is_boolean()) return value->get<bool>() ? ActOrder::kGroup : ActOrder::kNone;
  PREPACK_TRY_ASSIGN(const std::optional<std::string> text,
                     OptionalString(args, "actorder", where));
  const std::string name = LowerCase(*text);
  if (name == "group" || name == "dynamic") return ActOrder::kGroup;
  if (name == "weight" || name == "static") return ActOrder::kWeight;
  return UnknownKeyword(where, "actorder", name, "group, dynamic, weight or static");
}

// [rows, columns], or the older "128x128"; {0, 0} when absent.
Result<std::array<uint64_t, 2>> ParseBlock(const Json& args, std::string_view where) {
  std::array<uint64_t, 2> block = {};
  const Json* value = JsonMember(args, "block_structure");
  if (value == nullptr) return block;
  bool sound = false;
  if (value->is_array() && value->size() == 2) {
    sound = true;
    for (size_t i = 0; i < 2; ++i) {
      const Json& side = (*value)[i];
      sound = sound && side.is_number_integer() && side.get<int64_t>() > 0;
      if (sound) block[i] = static_cast<uint64_t>(side.get<int64_t>());
    }
  } else if (value->is_string()) {
    const std::string text = LowerCase(value->get<std::string>());
    const char* end = text.data() + text.size();
    const auto [middle, error] = std::from_chars(text.data(), end, block[0]);
    if (error == std::errc() && middle != end && *middle == 'x') {
      const auto [rest, error2] = std::from_chars(middle + 1, end, block[1]);
      sound = error2 == std::errc() && rest == end && block[0] > 0 && block[1] > 0;
    }
  }
  if (sound) return block;
  return Invalid(where, "block_structure", "the block is not two positive numbers")
      .Found(ShowJson(*value))
      .Expected("[rows, columns]");
}

// What one field says about another.
Status CheckConsistency(const Args& args, std::optional<int64_t> group_size, Role role,
                        std::string_view where) {
  const std::string strategy = fmt::format("strategy {}", StrategyName(args.strategy));
  if (HasGroups(args.strategy) && group_size.value_or(-1) <= 0) {
    return Invalid(where, "group_size", strategy + " needs a group size")
        .Found(group_size ? std::to_string(*group_size) : "null")
        .Expected("a positive number");
  }
  if (!HasGroups(args.strategy) && group_size.value_or(-1) > 0) {
    return Invalid(where, "group_size", strategy + " has no groups")
        .Found(std::to_string(*group_size))
        .Expected("null");
  }
  if (group_size == -1 && args.strategy != Strategy::kChannel) {
    return Invalid(where, "group_size", strategy + " contradicts the group size")
        .Found("-1")
        .Expected("null, or strategy channel");
  }
  if ((args.strategy == Strategy::kBlock) != (args.block[0] > 0)) {
    return Invalid(
        where, "block_structure",
        args.block[0] > 0 ? strategy + " has no blocks" : "strategy block needs a block size");
  }
  if (args.actorder == ActOrder::kGroup && !HasGroups(args.strategy)) {
    return Invalid(where, "actorder", strategy + " has no groups to order");
  }
  if (args.strategy == Strategy::kToken && args.dynamic != Dynamic::kYes) {
    return Invalid(where, "dynamic", "strategy token is always dynamic")
        .Found("not true")
        .Expected("true");
  }
  if (role == Role::kActivations) return {};
  if (args.dynamic != Dynamic::kNo) {
    return Invalid(where, "dynamic", "weights cannot be quantized at run time");
  }
  if (args.strategy == Strategy::kToken || args.strategy == Strategy::kAttentionHead) {
    return Invalid(where, "strategy", "this strategy is for activations only")
        .Found(StrategyName(args.strategy));
  }
  if (args.type == Type::kFloat && !args.symmetric) {
    return Invalid(where, "symmetric", "float weights have no zero points")
        .Found("false")
        .Expected("true");
  }
  return {};
}

Args IntWeights(uint32_t bits, bool symmetric) {
  Args args;
  args.num_bits = bits;
  args.symmetric = symmetric;
  args.strategy = Strategy::kGroup;
  args.group_size = 128;
  return args;
}

Args Weights8(Type type, Strategy strategy) {
  Args args;
  args.type = type;
  args.strategy = strategy;
  if (strategy == Strategy::kBlock) args.block = {128, 128};
  return args;
}

Args Activations(Type type, Strategy strategy, Dynamic dynamic) {
  Args args;
  args.type = type;
  args.strategy = strategy;
  args.dynamic = dynamic;
  if (strategy == Strategy::kGroup) args.group_size = 128;
  return args;
}

}  // namespace

Result<Args> ParseArgs(const Json& args, Role role, std::string_view where) {
  PREPACK_TRY(RequireObject(args, where));
  PREPACK_TRY(RefuseUnknownKeys(args, kArgsKeys, where));

  Args parsed;
  PREPACK_TRY_ASSIGN(const Type type, ParseType(args, where));
  parsed.type = type;
  PREPACK_TRY_ASSIGN(const uint32_t bits, ParseBits(args, type, where));
  parsed.num_bits = bits;
  PREPACK_TRY_ASSIGN(const std::optional<bool> symmetric, OptionalBool(args, "symmetric", where));
  parsed.symmetric = symmetric.value_or(true);
  PREPACK_TRY_ASSIGN(const std::optional<int64_t> group_size, ParseGroupSize(args, where));
  PREPACK_TRY_ASSIGN(const Strategy strategy, ParseStrategy(args, group_size, where));
  parsed.strategy = strategy;
  PREPACK_TRY_ASSIGN(const auto block, ParseBlock(args, where));
  parsed.block = block;
  PREPACK_TRY_ASSIGN(const Dynamic dynamic, ParseDynamic(args, where));
  parsed.dynamic = dynamic;
  PREPACK_TRY_ASSIGN(const ActOrder actorder, ParseActOrder(args, where));
  parsed.actorder = actorder;

  PREPACK_TRY(CheckConsistency(parsed, group_size, role, where));
  if (HasGroups(parsed.strategy)) parsed.group_size = static_cast<uint64_t>(*group_size);
  return parsed;
}

std::optional<Preset> FindPreset(std::string_view name) {
  const std::string preset = LowerCase(name);
  const Args int_tokens = Activations(Type::kInt, Strategy::kToken, Dynamic::kYes);
  const Args float_tokens = Activations(Type::kFloat, Strategy::kToken, Dynamic::kYes);
  if (preset == "w4a16_asym") return Preset{IntWeights(4, false), std::nullopt};
  if (preset == "w4afp8") return Preset{IntWeights(4, true), float_tokens};
  if (preset == "w8a8" || preset == "int8") {
    return Preset{Weights8(Type::kInt, Strategy::kChannel), int_tokens};
  }
  if (preset == "w4a8") return Preset{IntWeights(4, true), int_tokens};
  if (preset == "fp8") {
    return Preset{Weights8(Type::kFloat, Strategy::kTensor),
                  Activations(Type::kFloat, Strategy::kTensor, Dynamic::kNo)};
  }
  if (preset == "fp8_dynamic") {
    return Preset{Weights8(Type::kFloat, Strategy::kChannel), float_tokens};
  }
  if (preset == "fp8_block") {
    return Preset{Weights8(Type::kFloat, Strategy::kBlock),
                  Activations(Type::kFloat, Strategy::kGroup, Dynamic::kYes)};
  }
  // w2a16 … w8a16. Before 0.16 w8a16 had one scale per channel; the shape of the scales tells.
  if (preset.size() == 5 && preset[0] == 'w' && preset[1] >= '2' && preset[1] <= '8' &&
      preset.ends_with("a16")) {
    return Preset{IntWeights(static_cast<uint32_t>(preset[1] - '0'), true), std::nullopt};
  }
  return std::nullopt;
}

std::string_view StrategyName(Strategy strategy) {
  const auto* row = std::find_if(kStrategies.begin(), kStrategies.end(),
                                 [&](const auto& known) { return known.second == strategy; });
  return row->first;
}

std::string DescribeArgs(const Args& args) {
  std::string text =
      fmt::format("{}-bit {} {}", args.num_bits, args.type == Type::kInt ? "int" : "float",
                  StrategyName(args.strategy));
  if (args.group_size > 0) text += fmt::format(" {}", args.group_size);
  if (args.block[0] > 0) text += fmt::format(" {}x{}", args.block[0], args.block[1]);
  return text + (args.symmetric ? " symmetric" : " asymmetric");
}

}  // namespace prepack::ct
