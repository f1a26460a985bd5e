// What metadata and the list of tensors of a GGUF model say of each other.

#include <fmt/format.h>

#include <set>
#include <string>

#include "prepack/base/text.h"
#include "prepack/check/check.h"
#include "prepack/check/gguf_check.h"
#include "prepack/gguf/keys.h"

namespace prepack {
namespace {

// The number behind "blk."; nothing for a tensor of no layer.
std::optional<uint64_t> LayerOf(std::string_view name) {
  if (!name.starts_with(gguf::kBlockPrefix)) return std::nullopt;
  const std::string_view rest = name.substr(gguf::kBlockPrefix.size());
  return ParseUint(rest.substr(0, rest.find('.')));
}

class MetadataCheck {
 public:
  MetadataCheck(const gguf::Model& model, std::vector<Finding>& findings)
      : model_(model), findings_(findings) {}

  void Run() {
    if (model_.architecture().empty()) {
      Add("metadata-missing", gguf::kArchitecture, "the file does not name its architecture");
    } else {
      CheckLayers();
      CheckEmbedding();
      CheckFeedForward();
    }
    for (const gguf::ModelFile& file : model_.files()) {
      if (file.unused_bytes == 0) continue;
      Add("file-unused-bytes", file.name,
          fmt::format("{} bytes behind the last tensor", file.unused_bytes));
    }
  }

 private:
  void Add(FindingId id, std::string_view where, std::string_view message) {
    findings_.push_back(MakeFinding(id, where, message));
  }

  std::string Key(std::string_view of_architecture) const {
    return model_.architecture() + std::string(of_architecture);
  }

  void CheckLayers() {
    std::set<uint64_t> layers;
    for (const gguf::Tensor& tensor : model_.tensors()) {
      if (const std::optional<uint64_t> layer = LayerOf(tensor.name)) layers.insert(*layer);
    }
    if (layers.empty()) return;
    const std::optional<uint64_t> count = model_.ArchitectureUint(gguf::kBlockCount);
    if (!count) {
      Add("metadata-missing", Key(gguf::kBlockCount),
          fmt::format("{} layers have tensors, but no integer counts them", layers.size()));
      return;
    }
    if (*layers.rbegin() >= *count) {
      Add("metadata-layers", fmt::format("{}{}", gguf::kBlockPrefix, *layers.rbegin()),
          fmt::format("the layer has tensors, but {} is {}", Key(gguf::kBlockCount), *count));
    }
    const auto present =
        static_cast<uint64_t>(std::distance(layers.begin(), layers.lower_bound(*count)));
    if (present < *count) AddMissing(layers, *count, *count - present);
  }

  void AddMissing(const std::set<uint64_t>& layers, uint64_t count, uint64_t missing) {
    uint64_t first = 0;
    while (layers.contains(first)) ++first;
    Add("metadata-layers", fmt::format("{}{}", gguf::kBlockPrefix, first),
        fmt::format("{} is {}, but {} of these layers have no tensors; this is the first",
                    Key(gguf::kBlockCount), count, missing));
  }

  // Dimension `dim` of the tensor, if it is there, against a number of the metadata, if it is.
  void Compare(std::string_view name, size_t dim, std::string_view key,
               std::optional<uint64_t> expected) {
    const gguf::Tensor* tensor = model_.FindTensor(name);
    if (tensor == nullptr || !expected) return;
    const uint64_t found = dim < tensor->dims.size() ? tensor->dims[dim] : 1;
    if (found == *expected) return;
    Add("metadata-shape", name,
        fmt::format("dimension {} is {}, but {} is {}", dim, found, key, *expected));
  }

  void CheckEmbedding() {
    const std::string key = Key(gguf::kEmbeddingLength);
    const std::optional<uint64_t> length = model_.ArchitectureUint(gguf::kEmbeddingLength);
    if (!length && model_.FindTensor(gguf::kTokenEmbedding) != nullptr) {
      Add("metadata-missing", key, "there is an embedding, but no integer says how wide it is");
    }
    Compare(gguf::kTokenEmbedding, 0, key, length);
    Compare("output_norm.weight", 0, key, length);
    ForLayers(
        [&](const std::string& prefix) { Compare(prefix + "attn_norm.weight", 0, key, length); });
    const gguf::Value* tokens = model_.FindValue(gguf::kTokens);
    if (tokens != nullptr && tokens->type == gguf::ValueType::kArray) {
      Compare(gguf::kTokenEmbedding, 1, "the number of tokens", tokens->count);
    } else {
      Compare(gguf::kTokenEmbedding, 1, Key(gguf::kVocabSize),
              model_.ArchitectureUint(gguf::kVocabSize));
    }
  }

  // Only of the projection down: some architectures store gate and up in one tensor. Where the key
  // is an array, layers differ.
  void CheckFeedForward() {
    const std::string key = Key(gguf::kFeedForwardLength);
    const std::optional<uint64_t> length = model_.ArchitectureUint(gguf::kFeedForwardLength);
    ForLayers(
        [&](const std::string& prefix) { Compare(prefix + "ffn_down.weight", 0, key, length); });
  }

  // No more layers than there are tensors, whatever the metadata says.
  template <typename Work>
  void ForLayers(Work work) {
    const uint64_t count = std::min<uint64_t>(
        model_.ArchitectureUint(gguf::kBlockCount).value_or(0), model_.tensors().size());
    for (uint64_t layer = 0; layer < count; ++layer) {
      work(fmt::format("{}{}.", gguf::kBlockPrefix, layer));
    }
  }

  const gguf::Model& model_;
  std::vector<Finding>& findings_;
};

}  // namespace

void CheckGgufMetadata(const gguf::Model& model, std::vector<Finding>& findings) {
  MetadataCheck(model, findings).Run();
}

}  // namespace prepack
