#ifndef PREPACK_TESTS_GOLDEN_FILE_H_
#define PREPACK_TESTS_GOLDEN_FILE_H_

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "canonical/panel.h"
#include "catch.h"
#include "container/safetensors.h"
#include "layouts/layout.h"
#include "temp_folder.h"

namespace prepack::testing {

// A file of fixtures/golden/: what a real packer made of known inputs (see fixtures/README.md).
class GoldenFile {
 public:
  explicit GoldenFile(const std::filesystem::path& path) {
    const Result<File> file = File::OpenForRead(path);
    REQUIRE(file.ok());
    const Result<SafetensorsHeader> header = ReadSafetensorsHeader(*file);
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
    std::vector<uint64_t> shape;
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
  uint64_t n() const { return At("codes").shape.at(0); }
  uint64_t k() const { return At("codes").shape.at(1); }

  PackRequest Request() const {
    PackRequest request;
    request.scheme.group_size = std::stoull(metadata_.at("group_size"));
    request.scheme.granularity =
        request.scheme.group_size == k() ? Granularity::kChannel : Granularity::kGroup;
    request.scheme.symmetric = metadata_.at("symmetric") == "True";
    request.n = n();
    request.k = k();
    request.activation_dtype = metadata_.at("activation") == "float16" ? DType::kF16 : DType::kBF16;
    request.stored_scale_dtype = DType::kF32;
    return request;
  }

  // The codes as a canonical panel of all rows.
  std::vector<std::byte> Panel() const {
    const std::vector<uint8_t> codes = Values<uint8_t>("codes");
    std::vector<std::byte> panel(codes.size() / 2);
    for (size_t i = 0; i < codes.size(); i += 2) {
      panel[i / 2] = static_cast<std::byte>(codes[i] | codes[i + 1] << 4);
    }
    return panel;
  }

 private:
  std::map<std::string, std::string> metadata_;
  std::map<std::string, Tensor> tensors_;
};

inline std::vector<std::filesystem::path> AllGoldenFiles() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(Fixture("golden"))) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Those of the layouts that can be packed.
inline std::vector<std::filesystem::path> GoldenFiles() {
  std::vector<std::filesystem::path> paths;
  for (const std::filesystem::path& path : AllGoldenFiles()) {
    const std::string name = path.filename().string();
    if (name.starts_with("vllm-cpu_wna16_") || name.starts_with("zentorch_woq_")) {
      paths.push_back(path);
    }
  }
  return paths;
}

}  // namespace prepack::testing

#endif  // PREPACK_TESTS_GOLDEN_FILE_H_
