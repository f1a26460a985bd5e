#include "sample_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string_view>

#include "base/random.h"
#include "container/json_strict.h"
#include "container/safetensors_writer.h"
#include "io/file.h"

namespace prepack::bench {
namespace {

constexpr uint64_t kGroup = 128;
using Bytes = std::vector<std::byte>;

struct Tensor {
  std::string suffix;
  std::string dtype;
  std::vector<uint64_t> shape;
  Bytes bytes;
};

// Codes may be anything.
Bytes RandomBytes(uint64_t count) {
  SplitMix64 random(7);
  Bytes bytes(count);
  for (uint64_t i = 0; i + 8 <= count; i += 8) {
    const uint64_t value = random.Next();
    std::memcpy(bytes.data() + i, &value, 8);
  }
  return bytes;
}

// The same little-endian value over and over: scales, zero points.
template <typename T>
Bytes Repeated(T value, uint64_t count) {
  Bytes bytes(count * sizeof(T));
  for (uint64_t i = 0; i < count; ++i) std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  return bytes;
}

template <typename T>
Bytes Raw(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

constexpr uint16_t kBF16One = 0x3F80;
constexpr uint16_t kF16One = 0x3C00;

// Groups over shuffled input channels, kGroup of them in each.
std::vector<int32_t> ShuffledGroups(uint64_t k) {
  std::vector<int32_t> groups(k);
  for (uint64_t i = 0; i < k; ++i) groups[i] = static_cast<int32_t>(i / kGroup);
  SplitMix64 random(8);
  for (uint64_t i = k - 1; i > 0; --i) std::swap(groups[i], groups[random.Below(i + 1)]);
  return groups;
}

// Every module has the same tensors, each module its own copy.
Status Write(const std::filesystem::path& folder, uint64_t modules, const Json& quantization,
             const std::vector<Tensor>& tensors) {
  const Json config = {{"quantization_config", quantization}};
  Status status = WriteTextFile(folder / "config.json", config.dump());
  if (!status.ok()) return status;
  Json header = Json::object();
  uint64_t begin = 0;
  for (uint64_t layer = 0; layer < modules; ++layer) {
    for (const Tensor& tensor : tensors) {
      header[fmt::format("model.layers.{}.mlp.down_proj.{}", layer, tensor.suffix)] = {
          {"dtype", tensor.dtype},
          {"shape", tensor.shape},
          {"data_offsets", {begin, begin + tensor.bytes.size()}}};
      begin += tensor.bytes.size();
    }
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::ofstream out(folder / "model.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), 8);
  out << text;
  for (uint64_t layer = 0; layer < modules; ++layer) {
    for (const Tensor& tensor : tensors) {
      out.write(reinterpret_cast<const char*>(tensor.bytes.data()),
                static_cast<std::streamsize>(tensor.bytes.size()));
    }
  }
  out.close();
  return out ? Status() : SystemError(folder.string(), "cannot write the sample", EIO);
}

Json CtConfig(std::string_view format, const Json& weights, const Json& activations) {
  return {
      {"quant_method", "compressed-tensors"},
      {"format", format},
      {"version", "0.19.0"},
      {"config_groups",
       {{"group_0",
         {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", activations}}}}}};
}

template <uint32_t kBits>
Status WriteCtPacked(const std::filesystem::path& folder, uint64_t n, uint64_t k,
                     uint64_t modules) {
  return Write(folder, modules,
               CtConfig("pack-quantized", {{"num_bits", kBits}, {"group_size", kGroup}}, nullptr),
               {{"weight_packed", "I32", {n, k * kBits / 32}, RandomBytes(n * k * kBits / 8)},
                {"weight_scale", "BF16", {n, k / kGroup}, Repeated(kBF16One, n * k / kGroup)},
                {"weight_shape", "I64", {2}, Raw(std::vector<uint64_t>{n, k})}});
}

Status WriteCtActOrder(const std::filesystem::path& folder, uint64_t n, uint64_t k,
                       uint64_t modules) {
  return Write(folder, modules,
               CtConfig("pack-quantized",
                        {{"num_bits", 4}, {"group_size", kGroup}, {"actorder", "group"}}, nullptr),
               {{"weight_packed", "I32", {n, k / 8}, RandomBytes(n * k / 2)},
                {"weight_scale", "BF16", {n, k / kGroup}, Repeated(kBF16One, n * k / kGroup)},
                {"weight_shape", "I64", {2}, Raw(std::vector<uint64_t>{n, k})},
                {"weight_g_idx", "I32", {k}, Raw(ShuffledGroups(k))}});
}

const Json kPerToken = {{"num_bits", 8}, {"strategy", "token"}, {"dynamic", true}};

Status WriteCtInt8(const std::filesystem::path& folder, uint64_t n, uint64_t k, uint64_t modules) {
  return Write(folder, modules,
               CtConfig("int-quantized", {{"num_bits", 8}, {"strategy", "channel"}}, kPerToken),
               {{"weight", "I8", {n, k}, RandomBytes(n * k)},
                {"weight_scale", "BF16", {n, 1}, Repeated(kBF16One, n)}});
}

// Four bits in a byte each: −8 … 7.
Status WriteCtW4A8(const std::filesystem::path& folder, uint64_t n, uint64_t k, uint64_t modules) {
  Bytes codes = RandomBytes(n * k);
  for (std::byte& code : codes) {
    code = static_cast<std::byte>((std::to_integer<unsigned>(code) & 15U) - 8U);
  }
  return Write(folder, modules,
               CtConfig("int-quantized", {{"num_bits", 4}, {"group_size", kGroup}}, kPerToken),
               {{"weight", "I8", {n, k}, std::move(codes)},
                {"weight_scale", "BF16", {n, k / kGroup}, Repeated(kBF16One, n * k / kGroup)}});
}

Status WriteFp8(const std::filesystem::path& folder, uint64_t n, uint64_t k, uint64_t modules) {
  Bytes codes = RandomBytes(n * k);
  for (std::byte& code : codes) code &= std::byte{0xBF};  // no NaN
  return Write(
      folder, modules, {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}},
      {{"weight", "F8_E4M3", {n, k}, std::move(codes)},
       {"weight_scale_inv", "F32", {n / 128, k / 128}, Repeated(1.0F, n * k / 128 / 128)}});
}

Status WriteGptqTensors(const std::filesystem::path& folder, uint64_t n, uint64_t k,
                        uint64_t modules, uint32_t bits, bool act_order) {
  const uint64_t groups = k / kGroup;
  std::vector<Tensor> tensors = {
      {"qweight", "I32", {k * bits / 32, n}, RandomBytes(n * k * bits / 8)},
      {"scales", "F16", {groups, n}, Repeated(kF16One, groups * n)}};
  // Symmetric v1: 2^(b−1) − 1 in every field, low bits first.
  Bytes zeros(groups * n * bits / 8);
  for (uint64_t i = 0; i < zeros.size() * 8; ++i) {
    if (i % bits != bits - 1) zeros[i / 8] |= static_cast<std::byte>(1U << (i % 8));
  }
  tensors.push_back({"qzeros", "I32", {groups, n * bits / 32}, std::move(zeros)});
  if (act_order) tensors.push_back({"g_idx", "I32", {k}, Raw(ShuffledGroups(k))});
  return Write(folder, modules,
               {{"quant_method", "gptq"},
                {"bits", bits},
                {"group_size", kGroup},
                {"desc_act", act_order},
                {"sym", true},
                {"checkpoint_format", "gptq"}},
               tensors);
}

template <uint32_t kBits, bool kActOrder>
Status WriteGptq(const std::filesystem::path& folder, uint64_t n, uint64_t k, uint64_t modules) {
  return WriteGptqTensors(folder, n, k, modules, kBits, kActOrder);
}

Json AwqConfig(std::string_view version) {
  return {{"quant_method", "awq"},
          {"bits", 4},
          {"group_size", kGroup},
          {"zero_point", true},
          {"version", version}};
}

Status WriteAwqGemm(const std::filesystem::path& folder, uint64_t n, uint64_t k, uint64_t modules) {
  const uint64_t groups = k / kGroup;
  return Write(folder, modules, AwqConfig("gemm"),
               {{"qweight", "I32", {k, n / 8}, RandomBytes(n * k / 2)},
                {"qzeros", "I32", {groups, n / 8}, RandomBytes(groups * n / 2)},
                {"scales", "F16", {groups, n}, Repeated(kF16One, groups * n)}});
}

Status WriteAwqGemv(const std::filesystem::path& folder, uint64_t n, uint64_t k, uint64_t modules) {
  const uint64_t words = k / kGroup / 8;  // exact for the sizes that are measured
  return Write(folder, modules, AwqConfig("gemv"),
               {{"qweight", "I32", {n, k / 8}, RandomBytes(n * k / 2)},
                {"qzeros", "I32", {n, words}, RandomBytes(n * words * 4)},
                {"scales", "F16", {n, words * 8}, Repeated(kF16One, n * words * 8)}});
}

Status WriteAwqGemvFast(const std::filesystem::path& folder, uint64_t n, uint64_t k,
                        uint64_t modules) {
  const uint64_t groups = k / kGroup;
  constexpr uint16_t kMinusEight = 0xC800;  // −scale · 8 in F16
  return Write(folder, modules, AwqConfig("gemv_fast"),
               {{"qweight", "I16", {n / 4, k}, RandomBytes(n * k / 2)},
                {"qzeros", "F16", {groups, n}, Repeated(kMinusEight, groups * n)},
                {"scales", "F16", {groups, n}, Repeated(kF16One, groups * n)}});
}

}  // namespace

const std::vector<SampleFormat>& SampleFormats() {
  static const std::vector<SampleFormat> formats = {
      {"ct pack-quantized 4-bit", 4, WriteCtPacked<4>},
      {"ct pack-quantized 8-bit", 8, WriteCtPacked<8>},
      {"ct pack-quantized 3-bit", 3, WriteCtPacked<3>},
      {"ct pack-quantized 2-bit", 2, WriteCtPacked<2>},
      {"ct act-order 4-bit", 4, WriteCtActOrder},
      {"ct int-quantized 8-bit", 8, WriteCtInt8},
      {"ct int-quantized 4-bit", 8, WriteCtW4A8},
      {"fp8 blocks", 8, WriteFp8},
      {"gptq 4-bit", 4, WriteGptq<4, false>},
      {"gptq 8-bit", 8, WriteGptq<8, false>},
      {"gptq 3-bit", 3, WriteGptq<3, false>},
      {"gptq 2-bit", 2, WriteGptq<2, false>},
      {"gptq 4-bit act-order", 4, WriteGptq<4, true>},
      {"awq gemm", 4, WriteAwqGemm},
      {"awq gemv", 4, WriteAwqGemv},
      {"awq gemv_fast", 4, WriteAwqGemvFast},
  };
  return formats;
}

}  // namespace prepack::bench
