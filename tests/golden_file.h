#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "catch.h"
#include "prepack/container/safetensors.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/table.h"
#include "prepack/model/panel.h"
#include "temp_folder.h"

namespace prepack::testing {

// A file of fixtures/golden/: what a real packer made of known inputs (see fixtures/README.md).
class GoldenFile {
 public:
  explicit GoldenFile(const std::filesystem::path& path) {
    const Result<File> file = File::OpenForRead(path);
    INFO(file.status().ToString());
    REQUIRE(file.ok());
    const Result<SafetensorsHeader> header = ReadSafetensorsHeader(*file);
    INFO(header.status().ToString());
    REQUIRE(header.ok());
    metadata_ = header->metadata;
    for (const TensorInfo& tensor : header->tensors) {
      Tensor& copy = tensors_[tensor.name];
      copy.dtype = tensor.dtype;
      copy.shape = tensor.shape;
      copy.bytes.resize(tensor.bytes());
      REQUIRE(file->ReadAt(header->data_start + tensor.begin, copy.bytes).ok());
    }
  }

  struct Tensor {
    DType dtype = DType::kU8;
    TensorShape shape;
    std::vector<std::byte> bytes;
  };

  bool Has(const std::string& name) const { return tensors_.contains(name); }
  const Tensor& At(const std::string& name) const {
    INFO("tensor " << name);
    REQUIRE(Has(name));
    return tensors_.at(name);
  }
  // The elements of a tensor whose element size is that of T.
  template <typename T>
  std::vector<T> Values(const std::string& name) const {
    const Tensor& tensor = At(name);
    REQUIRE(DTypeBits(tensor.dtype) == 8 * sizeof(T));
    std::vector<T> values(tensor.bytes.size() / sizeof(T));
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
  }

  // Empty when the file says nothing of it.
  std::string Metadata(const std::string& key) const {
    const auto entry = metadata_.find(key);
    return entry == metadata_.end() ? "" : entry->second;
  }
  std::string layout() const { return metadata_.at("layout"); }
  uint64_t n() const { return At("codes").shape[0]; }
  uint64_t k() const { return At("codes").shape[1]; }

  PackRequest Request() const {
    PackRequest request;
    request.scheme = MakeScheme();
    request.n = n();
    request.k = k();
    request.activation_dtype = ActivationDType();
    request.stored_scale_dtype = DType::kF32;
    if (layout().starts_with("kt/")) request.experts = 1;  // kt-kernel has no other op
    if (Has("bias")) request.bias_dtype = DType::kF32;
    request.exact_scales =
        layout() == "zentorch/woq" && At("packed.weight_scale").dtype == DType::kF32;
    // The op quantizes activations where the layout is for nothing else.
    if (!FindLayout(layout())->eligible(request).ok) request.scheme.activations = Activations();
    return request;
  }

  // The codes as a canonical panel of all rows.
  std::vector<std::byte> Panel() const {
    if (At("codes").dtype != DType::kU8) return At("codes").bytes;
    const std::vector<uint8_t> codes = Values<uint8_t>("codes");
    std::vector<std::byte> panel(codes.size() / 2);
    for (size_t i = 0; i < codes.size(); i += 2) {
      panel[i / 2] = static_cast<std::byte>(codes[i] | codes[i + 1] << 4);
    }
    return panel;
  }

  // Scales [N, G]: those of blocks repeated for their rows.
  std::vector<float> Scales() const {
    const std::vector<float> stored = Values<float>("scales");
    const PackRequest request = Request();
    const uint64_t rows = At("scales").shape[0];
    const uint64_t per_row = stored.size() / rows;
    std::vector<float> scales;
    for (uint64_t row = 0; row < request.n; ++row) {
      const uint64_t from = rows == request.n ? row : row / request.scheme.scale_rows;
      for (uint64_t g = 0; g < request.groups(); ++g) scales.push_back(stored[from * per_row + g]);
    }
    return scales;
  }

  // Zero points [N, G], also when symmetric.
  std::vector<uint8_t> ZeroPoints() const {
    if (Has("zero_points")) return Values<uint8_t>("zero_points");
    const PackRequest request = Request();
    return std::vector<uint8_t>(request.n * request.groups(), ZeroOfSymmetric(request.scheme));
  }

 private:
  DType ActivationDType() const {
    if (Metadata("activation") == "float16") return DType::kF16;
    return Metadata("activation") == "float32" ? DType::kF32 : DType::kBF16;
  }

  ActivationScheme Activations() const {
    const std::string how = Metadata("activation_quantization");
    const bool dynamic = how.find("static") == std::string::npos;
    const bool float8 = At("codes").dtype == DType::kF8E4M3;
    return {.type = float8 ? ActivationType::kFloat : ActivationType::kInt,
            .bits = 8,
            .symmetric = how.find("asymmetric") == std::string::npos,
            .dynamic = dynamic,
            .granularity = dynamic ? ActivationGranularity::kToken : ActivationGranularity::kTensor,
            .group_size = 0};
  }

  Scheme MakeScheme() const {
    Scheme scheme;
    scheme.symmetric = Metadata("symmetric") != "False";
    const DType codes = At("codes").dtype;
    scheme.code = codes == DType::kU8   ? CodeType::kU4
                  : codes == DType::kI8 ? CodeType::kS8
                                        : CodeType::kF8E4M3;
    scheme.bits = CodeBits(scheme.code);
    const std::string block = Metadata("block");
    const bool per_tensor = Metadata("inputs").find("per_tensor") != std::string::npos;
    const std::string group = Metadata("group_size");
    scheme.group_size = group.empty() ? k() : std::stoull(group);
    scheme.granularity = scheme.group_size == k() ? Granularity::kChannel : Granularity::kGroup;
    if (per_tensor) {
      scheme.granularity = Granularity::kTensor;
      scheme.scale_rows = n();
    } else if (!block.empty()) {
      scheme.granularity = Granularity::kBlock;
      scheme.scale_rows = std::stoull(block);  // the number before the "x"
      scheme.group_size = 128;
    }
    return scheme;
  }

  std::map<std::string, std::string> metadata_;
  std::map<std::string, Tensor> tensors_;
};

inline std::vector<std::filesystem::path> GoldenFiles() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(Fixture("golden"))) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace prepack::testing
