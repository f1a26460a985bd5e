// Chooses the second decoder by the format's name. Every format has its own; those whose tensors
// are rows of codes share rows.cpp.

#include "prepack/verify/second/decoder.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/verify/second/tensors.h"

namespace prepack {
namespace {

// The single number in a tensor.
Status ReadOne(const Checkpoint& source, const StoredTensor& tensor, double& value) {
  const SecondRange first{.row = 0, .rows = 1, .column = 0, .columns = 1};
  if (tensor.dtype == DType::kI8) {
    std::vector<int8_t> bytes;
    Status status = ReadSecond(source, tensor, first, bytes);
    if (status.ok()) value = bytes[0];
    return status;
  }
  if (tensor.dtype == DType::kU8) {
    std::vector<uint8_t> bytes;
    Status status = ReadSecond(source, tensor, first, bytes);
    if (status.ok()) value = bytes[0];
    return status;
  }
  if (tensor.dtype == DType::kI32) {
    std::vector<int32_t> words;
    Status status = ReadSecond(source, tensor, first, words);
    if (status.ok()) value = words[0];
    return status;
  }
  std::vector<double> floats;
  Status status = ReadSecondFloats(source, tensor, first, floats);
  if (status.ok()) value = floats[0];
  return status;
}

}  // namespace

Result<SecondDecoder> SecondDecoder::Make(const Checkpoint& source, const std::string& format) {
  struct Row {
    std::string_view format;
    DecodeFn decode;
  };
  static constexpr auto kDecoders = std::to_array<Row>({
#define PREPACK_FORMAT(id, reader, keys, decode) {id, decode},
#include "prepack/formats/formats.inc"
      {"gguf", DecodeGguf},
  });
  for (const Row& row : kDecoders) {
    if (row.format != format) continue;
    return SecondDecoder(source, row.decode, format == "auto-round" && IsOldModelFree(source));
  }
  return Unsupported(source.path().string(), "no second decoder for this format").Found(format);
}

Status SecondDecoder::Decode(const std::string& module, uint64_t k, uint64_t n0, uint64_t rows,
                             DecodedRows& out) const {
  return DecodeSlab(module, k, {.k0 = 0, .inputs = k}, n0, rows, out);
}

Status SecondDecoder::DecodeSlab(const std::string& module, uint64_t k, const InputSlab& slab,
                                 uint64_t n0, uint64_t rows, DecodedRows& out) const {
  const SecondRows wanted{.module = module,
                          .k = k,
                          .n0 = n0,
                          .rows = rows,
                          .k0 = slab.k0,
                          .inputs = slab.inputs,
                          .old_model_free = old_model_free_,
                          .takes_small = out.takes_small,
                          .takes_codes = out.takes_codes};
  out.values = nullptr;
  const DecodeFn decode = HasSecondPlain(*source_, wanted) ? DecodePlain : decode_;
  Status status = decode(*source_, wanted, out);
  // What an earlier call has left; memory that is used again is not filled with zeros first.
  if (!out.steps.empty()) out.small.clear();
  return status;
}

namespace {

bool HasTensorsBelow(const Checkpoint& source, const std::string& prefix) {
  const auto first = std::ranges::lower_bound(source.tensors(), prefix, {}, &StoredTensor::name);
  return first != source.tensors().end() && first->name.starts_with(prefix);
}

// gpt-oss, also within a model of several.
bool IsGptOss(const Json& config) {
  const auto says = [](const Json& part) {
    const auto type = part.find("model_type");
    return type != part.end() && *type == "gpt_oss";
  };
  return config.is_object() && (says(config) || std::ranges::any_of(config, [&](const Json& part) {
                                  return part.is_object() && says(part);
                                }));
}

}  // namespace

std::optional<SecondPiece> SecondDecoder::FindInStack(std::string_view module, uint64_t n) const {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = module.rfind(kExperts);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string experts(module.substr(0, at + kExperts.size()));
  const std::string rest(module.substr(experts.size()));
  const size_t dot = rest.find('.');
  if (dot == std::string::npos || source_->Find(experts + rest.substr(0, dot)) != nullptr) {
    return std::nullopt;
  }
  const std::string number = rest.substr(0, dot);
  const std::string projection = rest.substr(dot + 1);
  const bool is_gate = projection == "gate_proj";
  const bool is_half = is_gate || projection == "up_proj";
  const std::string stack = experts + (is_half ? "gate_up_proj" : projection);
  const bool stacked = HasTensorsBelow(*source_, stack) || HasSecondGgufStack(*source_, stack);
  if (HasTensorsBelow(*source_, std::string(module) + ".") || !stacked) return std::nullopt;
  SecondPiece piece{.module = stack + "." + number, .first = 0, .step = 1};
  if (!is_half) return piece;
  const bool alternate = IsGptOss(source_->config());
  piece.step = alternate ? 2 : 1;
  if (!is_gate) piece.first = alternate ? 1 : n;
  return piece;
}

namespace {

// MODULE.bias; or, of an expert named EXPERTS.X.7, row 7 of EXPERTS.X_bias.
struct SecondBias {
  const StoredTensor* tensor = nullptr;
  std::optional<uint64_t> row;
};

SecondBias FindSecondBias(const Checkpoint& source, const std::string& module) {
  if (const StoredTensor* own = source.Find(module + ".bias"))
    return {.tensor = own, .row = std::nullopt};
  std::string stem;
  uint64_t number = 0;
  if (!CutNumber(module, stem, number)) return {};
  return {.tensor = source.Find(stem + "_bias"), .row = number};
}

}  // namespace

bool SecondDecoder::HasBias(const std::string& module) const {
  return FindSecondBias(*source_, module).tensor != nullptr;
}

Status SecondDecoder::ReadBias(const std::string& module, std::vector<double>& bias) const {
  SecondBias found = FindSecondBias(*source_, module);
  if (found.tensor == nullptr) {
    PREPACK_TRY_ASSIGN(found.tensor, SecondTensor(*source_, module + ".bias"));
  }
  PREPACK_TRY_ASSIGN(const SecondShape shape, ShapeOfSecond(*source_, *found.tensor));
  if (found.row) {
    const SecondRange own{.row = *found.row, .rows = 1, .column = 0, .columns = shape.columns};
    return ReadSecondFloats(*source_, *found.tensor, own, bias);
  }
  return ReadSecondFloats(*source_, *found.tensor, {0, shape.rows, 0, shape.columns}, bias);
}

Result<DecodedInput> SecondDecoder::ReadInput(const std::string& module) const {
  DecodedInput input;
  // The name in transformers' FP8, otherwise the usual one.
  const bool of_transformers = source_->Find(module + ".activation_scale") != nullptr;
  PREPACK_TRY_ASSIGN(
      const StoredTensor* scale,
      SecondTensor(*source_, module + (of_transformers ? ".activation_scale" : ".input_scale")));
  Status status = ReadOne(*source_, *scale, input.scale);
  const StoredTensor* zero_point = source_->Find(module + ".input_zero_point");
  if (status.ok() && zero_point != nullptr) {
    status = ReadOne(*source_, *zero_point, input.zero_point);
    // Kernels compute with signed bytes, which are 128 less.
    if (zero_point->dtype == DType::kU8) input.zero_point -= 128;
  }
  if (!status.ok()) return status;
  return input;
}

}  // namespace prepack
