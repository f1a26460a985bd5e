#pragma once

// A model in GGUF: one file, or several that llama.cpp has split ("model-00001-of-00003.gguf"), of
// which any may be named. Metadata is that of the first.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/gguf/header.h"
#include "prepack/io/file.h"

namespace prepack::gguf {

// Does a path name a GGUF file: by the end of its name, or by its first bytes?
bool IsGguf(const std::filesystem::path& path);

struct ModelFile {
  std::string name;  // plain file name
  File file;
  size_t tensors = 0;
  uint64_t data_start = 0;
  uint64_t unused_bytes = 0;  // behind the last tensor and its padding
};

class Model {
 public:
  static Result<Model> Open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  const std::vector<ModelFile>& files() const { return files_; }
  // In the order of the file.
  const std::vector<Value>& values() const { return values_; }
  // Ascending by name.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  uint64_t total_bytes() const;  // of all tensors

  const Value* FindValue(std::string_view key) const;
  const Tensor* FindTensor(std::string_view name) const;
  // general.architecture, or nothing.
  const std::string& architecture() const { return architecture_; }
  // An integer of the architecture, such as kBlockCount: nothing if it is not there.
  std::optional<uint64_t> ArchitectureUint(std::string_view key) const;
  // "FILE: tensor NAME" and "FILE: key NAME", for errors.
  std::string Where(const Tensor& tensor) const;
  std::string Where(const Value& value) const;

  // The first `most` bytes of a text.
  Result<std::string> ReadText(const Value& value, uint64_t most) const;
  // The first `most` elements of an array of texts, each cut at `most_bytes`.
  Result<std::vector<std::string>> ReadTexts(const Value& value, uint64_t most,
                                             uint64_t most_bytes) const;
  // The bits of the first `most` elements of another array.
  Result<std::vector<uint64_t>> ReadNumbers(const Value& value, uint64_t most) const;
  // Calls `work` with bytes [offset, offset + bytes) of the tensor, which has them, mapped into
  // memory; see File::VisitAt.
  Status Visit(const Tensor& tensor, uint64_t offset, uint64_t bytes, ByteVisitor work) const;

 private:
  Model() = default;
  Status OpenSplit(uint64_t count);
  void Add(File file, Header header);
  Status SortTensors();
  Status ReadArchitecture();

  std::filesystem::path path_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 0;
  std::string architecture_;
  std::vector<ModelFile> files_;
  std::vector<Value> values_;
  std::vector<Tensor> tensors_;
};

}  // namespace prepack::gguf
