#pragma once

// The files of fixtures/golden/ as operands of the models: the real packer's bytes, the activations
// and what the real op made of them.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "golden_file.h"
#include "prepack/base/float_convert.h"
#include "prepack/gemm/kernel_model.h"

namespace prepack::testing {

inline std::vector<float> Floats(const GoldenFile& file, const std::string& name) {
  const DType dtype = file.At(name).dtype;
  if (dtype == DType::kF32) return file.Values<float>(name);
  std::vector<float> values;
  for (const uint16_t bits : file.Values<uint16_t>(name)) {
    values.push_back(dtype == DType::kBF16 ? BF16ToF32(bits) : F16ToF32(bits));
  }
  return values;
}

// What the kernel multiplies, [m, columns].
inline std::vector<double> AllActivations(const KernelModel& model, uint64_t m, uint64_t columns) {
  std::vector<double> x(m * columns);
  for (uint64_t row = 0; row < m; ++row) {
    model.CopyActivations(row, std::span(x).subspan(row * columns, columns));
  }
  return x;
}

// Owns what a PackedOperands points to.
class KernelModelFile {
 public:
  explicit KernelModelFile(const std::filesystem::path& path)
      : name(path.stem().string()), file(path) {
    x = Floats(file, "x");
    input = {.m = file.At("x").shape[0], .dtype = file.At("x").dtype, .x = x};
    if (file.Has("y")) y = Floats(file, "y");
    packed.n = file.n();
    packed.k = file.k();
    packed.group_size = packed.k;
    if (const std::string size = file.Metadata("group_size"); !size.empty()) {
      packed.group_size = std::stoull(size);
    }
    if (const std::string block = file.Metadata("block"); !block.empty()) {
      packed.block_rows = std::stoull(block);  // "64x128"
      packed.group_size = std::stoull(block.substr(block.find('x') + 1));
    }
    packed.weight = Bytes("packed.weight");
    packed.scale = Bytes("packed.weight_scale");
    if (file.Has("packed.weight_scale")) {
      packed.scale_dtype = file.At("packed.weight_scale").dtype;
    }
    packed.zero_point = Bytes("packed.weight_zero_point");
    packed.weight_sum = Bytes("packed.weight_sum");
    packed.bias = Bytes("packed.bias");
    if (file.Has("packed.bias")) packed.bias_dtype = file.At("packed.bias").dtype;
    ReadActivationScheme();
  }
  // Spans point into this very object.
  KernelModelFile(const KernelModelFile&) = delete;
  KernelModelFile& operator=(const KernelModelFile&) = delete;
  ~KernelModelFile() = default;

  const std::string name;
  const GoldenFile file;
  std::vector<float> x;
  std::vector<float> y;  // empty where the op could not run
  PackedOperands packed;
  ModelInput input;

 private:
  std::span<const std::byte> Bytes(const std::string& tensor) const {
    if (!file.Has(tensor)) return {};
    return file.At(tensor).bytes;
  }

  void ReadActivationScheme() {
    const std::string scheme = file.Metadata("activation_quantization");
    if (scheme == "dynamic per token, asymmetric") {
      packed.activations = ActivationQuantizer::kDynamicAsymmetric;
    } else if (scheme == "static per tensor, symmetric") {
      packed.activations = ActivationQuantizer::kStaticSymmetric;
    } else if (scheme == "static per tensor, asymmetric") {
      packed.activations = ActivationQuantizer::kStaticAsymmetric;
      packed.input_zero_point = file.Values<int32_t>("x.zero_point")[0];
    } else {
      return;
    }
    if (scheme.starts_with("static")) packed.input_scale = file.Values<float>("x.scale")[0];
  }
};

// The files of one layout, in the order of their names.
inline std::vector<std::filesystem::path> GoldenFilesOf(const std::string& layout) {
  std::string prefix = layout + "_";
  prefix[prefix.find('/')] = '_';
  std::vector<std::filesystem::path> paths;
  for (const std::filesystem::path& path : GoldenFiles()) {
    if (path.filename().string().starts_with(prefix)) paths.push_back(path);
  }
  return paths;
}

}  // namespace prepack::testing
