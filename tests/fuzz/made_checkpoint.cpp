#include "fuzz/made_checkpoint.h"

#include <nlohmann/json.hpp>

#include <numeric>

#include "formats/auto_round_example.h"
#include "formats/awq_example.h"
#include "formats/ct_example.h"
#include "formats/gptq_example.h"
#include "prepack/base/checked.h"
#include "prepack/base/float_convert.h"
#include "prepack/base/random.h"

namespace prepack::fuzz {
namespace {

using testing::TestCheckpoint;
using testing::TestTensor;

const std::string kModule = "model.layers.0.mlp.up_proj";
// Where runtimes run several modules as one.
constexpr const char* kMoreModules[] = {"model.layers.0.mlp.gate_proj",
                                        "model.layers.0.self_attn.q_proj"};

std::vector<std::byte> RandomBytes(size_t count, SplitMix64& random) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next());
  return bytes;
}

// 0.5 to 1.
std::vector<std::byte> RandomScales(size_t count, SplitMix64& random) {
  return testing::Halves(1, count, [&](uint64_t, uint64_t) {
    return F32ToBF16(static_cast<float>(0.5 + random.Uniform() / 2));
  });
}

Json ActivationArgs(Input& input) {
  if (input.Bool()) return nullptr;
  const bool dynamic = input.Bool();
  return {{"num_bits", 8},
          {"type", "int"},
          {"strategy", dynamic ? "token" : "tensor"},
          {"dynamic", dynamic},
          {"symmetric", true}};
}

// compressed-tensors: `weights` are the args, `tensors` what the module consists of.
TestCheckpoint CompressedTensors(Input& input, const char* format, const Json& weights,
                                 std::vector<TestTensor> tensors) {
  TestCheckpoint checkpoint;
  const Json activations = ActivationArgs(input);
  if (activations.is_object() && activations["dynamic"] == false) {
    tensors.push_back({kModule + ".input_scale", "F32", {1}, testing::Hex("0000003f")});
  }
  checkpoint.config = testing::ExampleConfig(true);
  Json& config = checkpoint.config["quantization_config"];
  config["format"] = format;
  config["config_groups"]["group_0"]["weights"] = weights;
  config["config_groups"]["group_0"]["input_activations"] = activations;
  checkpoint.tensors = std::move(tensors);
  return checkpoint;
}

// Codes of 4 or 8 bits in words.
TestCheckpoint CtPacked(Input& input, SplitMix64& random) {
  const uint64_t bits = input.Bool() ? 8 : 4;
  const uint64_t n = input.Between(1, 12) * (input.Bool() ? 16 : 1);
  const uint64_t group_size = 2 * input.Between(1, 20);
  const uint64_t k = group_size * input.Between(1, 4);
  const uint64_t groups = k / group_size;
  const bool symmetric = input.Bool();
  const uint64_t words = CeilDiv(k * bits, 32);
  std::vector<uint32_t> packed;
  for (uint64_t row = 0; row < n; ++row) {
    std::vector<uint32_t> codes(k);
    for (uint32_t& code : codes) code = static_cast<uint32_t>(random.Below(uint64_t{1} << bits));
    const auto of_row = testing::PackBits(codes, static_cast<uint32_t>(bits), false);
    packed.insert(packed.end(), of_row.begin(), of_row.end());
  }
  std::vector<TestTensor> tensors = {
      {kModule + ".weight_packed", "I32", {n, words}, testing::Words(packed)},
      {kModule + ".weight_scale", "BF16", {n, groups}, RandomScales(n * groups, random)},
      {kModule + ".weight_shape",
       "I64",
       {2},
       testing::Int64s({static_cast<int64_t>(n), static_cast<int64_t>(k)})}};
  if (!symmetric) {
    // Words along N: those behind the last channel are padding, and zero.
    std::vector<uint32_t> zeros(CeilDiv(n * bits, 32) * groups);
    for (uint64_t i = 0; i < n * groups; ++i) {
      const uint64_t bit = i / groups * bits;
      zeros[bit / 32 * groups + i % groups] |=
          static_cast<uint32_t>(random.Below(uint64_t{1} << bits)) << bit % 32;
    }
    tensors.push_back({kModule + ".weight_zero_point",
                       "I32",
                       {CeilDiv(n * bits, 32), groups},
                       testing::Words(zeros)});
  }
  const Json weights = {{"num_bits", bits},
                        {"type", "int"},
                        {"strategy", "group"},
                        {"group_size", group_size},
                        {"symmetric", symmetric}};
  return CompressedTensors(input, "pack-quantized", weights, std::move(tensors));
}

TestCheckpoint CtInt8(Input& input, SplitMix64& random) {
  const uint64_t n = input.Between(1, 12) * (input.Bool() ? 16 : 1);
  const uint64_t k = input.Between(1, 80);
  const Json weights = {
      {"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}, {"symmetric", true}};
  return CompressedTensors(input, "int-quantized", weights,
                           {{kModule + ".weight", "I8", {n, k}, RandomBytes(n * k, random)},
                            {kModule + ".weight_scale", "BF16", {n, 1}, RandomScales(n, random)}});
}

TestCheckpoint Fp8(Input& input, SplitMix64& random) {
  const uint64_t n = input.Between(1, 12) * (input.Bool() ? 16 : 1);
  const uint64_t k = input.Between(1, 100);
  const uint64_t block_n = input.Between(1, 64);
  const uint64_t block_k = input.Between(1, 64);
  std::vector<std::byte> codes = RandomBytes(n * k, random);
  for (std::byte& code : codes) code &= std::byte{0xBF};  // no NaN
  TestCheckpoint checkpoint;
  checkpoint.config = {{"quantization_config",
                        {{"quant_method", "fp8"},
                         {"activation_scheme", "dynamic"},
                         {"fmt", "e4m3"},
                         {"weight_block_size", {block_n, block_k}}}}};
  const uint64_t blocks = CeilDiv(n, block_n) * CeilDiv(k, block_k);
  checkpoint.tensors = {{kModule + ".weight", "F8_E4M3", {n, k}, codes},
                        {kModule + ".weight_scale_inv",
                         "BF16",
                         {CeilDiv(n, block_n), CeilDiv(k, block_k)},
                         RandomScales(blocks, random)}};
  return checkpoint;
}

// Exponents of scales from 2^-8 to 2^7.
std::vector<std::byte> RandomExponents(size_t count, SplitMix64& random) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(119 + random.Below(16));
  return bytes;
}

// MXFP4, or NVFP4 with scales from 2^-2 to 2^2.
TestCheckpoint CtFp4(Input& input, SplitMix64& random) {
  const bool nvfp4 = input.Bool();
  const uint64_t group_size = nvfp4 ? 16 : 32;
  const uint64_t n = input.Between(1, 12) * (input.Bool() ? 16 : 1);
  const uint64_t groups = input.Between(1, 6);
  const uint64_t k = groups * group_size;
  std::vector<TestTensor> tensors = {
      {kModule + ".weight_packed", "U8", {n, k / 2}, RandomBytes(n * k / 2, random)}};
  if (nvfp4) {
    std::vector<std::byte> scales(n * groups);
    for (std::byte& scale : scales) scale = static_cast<std::byte>(0x28 + random.Below(32));
    tensors.push_back({kModule + ".weight_scale", "F8_E4M3", {n, groups}, scales});
    tensors.push_back({kModule + ".weight_global_scale", "F32", {1}, testing::Hex("00000042")});
  } else {
    tensors.push_back(
        {kModule + ".weight_scale", "U8", {n, groups}, RandomExponents(n * groups, random)});
  }
  const Json weights = {{"num_bits", 4},
                        {"type", "float"},
                        {"strategy", nvfp4 ? "tensor_group" : "group"},
                        {"group_size", group_size},
                        {"symmetric", true}};
  return CompressedTensors(input, nvfp4 ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized", weights,
                           std::move(tensors));
}

// Experts as gpt-oss stores them.
TestCheckpoint Mxfp4Experts(Input& input, SplitMix64& random) {
  const uint64_t experts = input.Between(1, 3);
  const uint64_t n = input.Between(1, 6) * (input.Bool() ? 16 : 1);
  const uint64_t groups = input.Between(1, 4);
  const uint64_t scales = experts * n * groups;
  TestCheckpoint checkpoint;
  checkpoint.config = {{"quantization_config", {{"quant_method", "mxfp4"}}}};
  const std::string stem = "model.layers.0.mlp.experts.down_proj";
  checkpoint.tensors = {
      {stem + "_blocks", "U8", {experts, n, groups, 16}, RandomBytes(scales * 16, random)},
      {stem + "_scales", "U8", {experts, n, groups}, RandomExponents(scales, random)}};
  return checkpoint;
}

// Codes around their zero points, as quantizers write them: a reader tells from that how zero
// points are stored.
void CentreCodes(testing::GptqExample& x, SplitMix64& random) {
  const uint32_t spread = (1U << x.bits) / 4;
  for (uint32_t& zero : x.zeros) {
    zero = x.symmetric ? 2 * spread
                       : spread + static_cast<uint32_t>(random.Below(uint64_t{2} * spread));
  }
  for (uint64_t i = 0; i < x.k * x.n; ++i) {
    const uint64_t group = static_cast<uint64_t>(x.group_of[i / x.n]);
    const uint32_t zero = x.zeros[group * x.n + i % x.n];
    x.codes[i] = zero - spread + static_cast<uint32_t>(random.Below(uint64_t{2} * spread + 1));
  }
}

TestCheckpoint Gptq(Input& input, SplitMix64& random) {
  testing::GptqExample x;
  x.bits = input.OneOf({4U, 8U, 3U, 2U});
  x.n = input.Between(1, 5) * 32;
  x.group_size = input.Between(1, 4) * 32;
  x.k = x.group_size * input.Between(1, 3);
  x.symmetric = input.Bool();
  x.stored_zeros = input.Bool();
  x.planar = input.Below(4) == 3;
  x.Randomize(random.Next(), 1);
  const bool reordered = input.Below(4) == 3;
  if (reordered) x.Shuffle(random.Next());
  CentreCodes(x, random);
  TestCheckpoint checkpoint = testing::MakeGptq(x);
  testing::GptqConfigOf(checkpoint)["desc_act"] = reordered;
  return checkpoint;
}

TestCheckpoint Awq(Input& input, SplitMix64& random) {
  const size_t version = input.Below(3);
  const uint64_t group_size = input.OneOf({64U, 128U, 32U});
  const uint64_t k = std::lcm(group_size, uint64_t{64}) * input.Between(1, 3);
  const auto m = testing::RandomAwqNumbers(8 * input.Between(1, 16), k, group_size, random);
  if (version == 0) {
    return testing::AwqCheckpoint(testing::AwqGemmTensors(kModule, m), "gemm", group_size);
  }
  if (version == 1) {
    return testing::AwqCheckpoint(testing::AwqGemvTensors(kModule, m), "gemv", group_size);
  }
  return testing::AwqCheckpoint(testing::AwqGemvFastTensors(kModule, m), "gemv_fast", group_size);
}

TestCheckpoint AutoRound(Input& input, SplitMix64& random) {
  const bool symmetric = input.Bool();
  auto m = testing::RandomAwqNumbers(8 * input.Between(1, 16), 32 * input.Between(1, 4), 32, random,
                                     symmetric);
  if (input.Bool()) {
    return testing::ArCheckpoint(testing::AwqGemmTensors(kModule, m), "auto_round:auto_awq",
                                 symmetric);
  }
  return testing::ArCheckpoint(testing::ArGptqTensors(kModule, m, 0x77), "auto_round:auto_gptq",
                               symmetric);
}

// The next text of the input, without what no writer of JSON takes.
std::string NextText(Input& input) {
  std::string text(input.TextToNul());
  for (char& c : text) c = static_cast<char>(c & 0x7F);
  return text;
}

// Every node of the config but the root.
std::vector<Json::json_pointer> PathsOf(const Json& config) {
  std::vector<Json::json_pointer> paths;
  const Json leaves = config.flatten();
  for (const auto& [path, value] : leaves.items()) {
    Json::json_pointer pointer(path);
    while (!pointer.empty()) {
      paths.push_back(pointer);
      pointer = pointer.parent_pointer();
    }
  }
  return paths;
}

Json AnyValue(Input& input) {
  switch (input.Below(6)) {
    case 0:
      return input.Byte();
    case 1:
      return static_cast<int64_t>(input.U64());
    case 2:
      return input.OneOf(
          {Json(nullptr), Json(true), Json(false), Json::array(), Json::object(), Json(0.5)});
    case 3:
      return {input.Byte(), input.Byte()};
    default: {
      const std::string text = NextText(input);
      Json parsed = Json::parse(text, nullptr, false);
      return parsed.is_discarded() ? Json(text) : parsed;
    }
  }
}

void DamageConfig(Input& input, Json& config) {
  const std::vector<Json::json_pointer> paths = PathsOf(config);
  if (paths.empty()) return;
  const Json::json_pointer& path = paths[input.Below(paths.size())];
  Json& parent = config[path.parent_pointer()];
  switch (input.Below(3)) {
    case 0:
      config[path] = AnyValue(input);
      break;
    case 1:
      if (parent.is_object()) parent.erase(path.back());
      break;
    default:
      if (parent.is_object()) parent[NextText(input)] = AnyValue(input);
      break;
  }
}

void DamageShape(Input& input, TestTensor& tensor) {
  if (tensor.shape.empty() || input.Below(8) == 7) {
    tensor.shape.push_back(input.Byte());
  } else if (input.Below(8) == 7) {
    tensor.shape.pop_back();
  } else {
    uint64_t& dim = tensor.shape[input.Below(tensor.shape.size())];
    dim = input.Bool() ? dim + 1 - input.Below(3) : input.Byte();
  }
  // With as many bytes as the shape asks for: else the container is refused.
  const std::optional<DType> dtype = DTypeFromName(tensor.dtype);
  const std::optional<uint64_t> bytes = TensorBytes(*dtype, tensor.shape);
  if (bytes && *bytes < 1 << 16) tensor.bytes.resize(*bytes);
}

void DamageType(Input& input, TestTensor& tensor) {
  tensor.dtype = input.OneOf({"I32", "U8", "I8", "F16", "BF16", "F32", "I64", "F8_E4M3", "BOOL",
                              "U32", "F64", "I16", "F8_E5M2", "F4"});
  const std::optional<DType> dtype = DTypeFromName(tensor.dtype);
  if (input.Bool()) {
    if (const auto bytes = TensorBytes(*dtype, tensor.shape)) tensor.bytes.resize(*bytes);
  }
}

void DamageBytes(Input& input, TestTensor& tensor) {
  if (tensor.bytes.empty()) return;
  for (size_t left = input.Between(1, 8); left > 0; --left) {
    tensor.bytes[input.U16() % tensor.bytes.size()] = static_cast<std::byte>(input.Byte());
  }
}

}  // namespace

testing::TestCheckpoint MakeCheckpoint(Input& input) {
  using Maker = TestCheckpoint (*)(Input & input, SplitMix64 & random);
  constexpr Maker kMakers[] = {CtPacked, CtInt8, Fp8, Gptq, Awq, AutoRound, CtFp4, Mxfp4Experts};
  const Maker maker = input.OneOf(kMakers);
  SplitMix64 random(input.Byte());
  const size_t more = input.Below(std::size(kMoreModules) + 1);
  TestCheckpoint checkpoint = maker(input, random);
  const std::vector<TestTensor> tensors = checkpoint.tensors;
  for (size_t i = 0; i < more; ++i) {
    for (TestTensor tensor : tensors) {
      if (!tensor.name.starts_with(kModule)) continue;
      tensor.name.replace(0, kModule.size(), kMoreModules[i]);
      checkpoint.tensors.push_back(std::move(tensor));
    }
  }
  if (input.Below(4) == 3) checkpoint.tensors.back().shard = 1;
  return checkpoint;
}

void Damage(Input& input, testing::TestCheckpoint& checkpoint) {
  TestTensor& tensor = checkpoint.tensors[input.Below(checkpoint.tensors.size())];
  switch (input.Below(7)) {
    case 0:
    case 1:
      return DamageConfig(input, checkpoint.config);
    case 2:
      return DamageShape(input, tensor);
    case 3:
      return DamageType(input, tensor);
    case 4:
      return DamageBytes(input, tensor);
    case 5:
      tensor.name = input.Bool() ? NextText(input) : tensor.name + NextText(input);
      return;
    default:
      checkpoint.tensors.erase(checkpoint.tensors.begin() + (&tensor - checkpoint.tensors.data()));
      return;
  }
}

}  // namespace prepack::fuzz
