#include "prepack/check/tied_weights.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/check/config_shapes.h"
#include "prepack/check/finding_list.h"
#include "prepack/container/model_config.h"
#include "prepack/formats/json_fields.h"

namespace prepack {
namespace {

constexpr std::array<std::string_view, 4> kEmbeddings = {
    "model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
    "transformer.wte.weight",
};
constexpr std::array<std::string_view, 2> kHeads = {"lm_head", "language_model.lm_head"};

constexpr size_t kChunk = size_t{1} << 20;

// True only when the config says so; what its absence means depends on the architecture. The top
// level decides where it says anything, as in transformers 5 and vLLM: what a multimodal model
// inherited in its text_config may say otherwise.
bool IsTied(const Checkpoint& checkpoint) {
  const auto says = [](const Json& config) {
    const Json* value = JsonMember(config, "tie_word_embeddings");
    return value != nullptr && value->is_boolean() ? std::optional(value->get<bool>())
                                                   : std::nullopt;
  };
  const std::optional<bool> whole = says(checkpoint.config());
  return whole ? *whole : says(LanguageConfig(checkpoint.config())).value_or(false);
}

const StoredTensor* FindEmbedding(const Checkpoint& checkpoint) {
  for (const std::string_view name : kEmbeddings) {
    if (const StoredTensor* embedding = checkpoint.Find(name)) return embedding;
  }
  return nullptr;
}

Result<bool> SameBytes(const Checkpoint& checkpoint, const StoredTensor& a, const StoredTensor& b) {
  std::vector<std::byte> left;
  std::vector<std::byte> right;
  for (uint64_t offset = 0; offset < a.bytes; offset += kChunk) {
    if (CancellationRequested()) return Interrupted(a.name);
    left.resize(static_cast<size_t>(std::min<uint64_t>(kChunk, a.bytes - offset)));
    right.resize(left.size());
    Status status = checkpoint.Read(a, offset, left);
    if (status.ok()) status = checkpoint.Read(b, offset, right);
    if (!status.ok()) return status;
    if (left != right) return false;
  }
  return true;
}

}  // namespace

Status CheckTiedWeights(const Checkpoint& checkpoint, const QuantizedModel& model, bool read_data,
                        std::vector<Finding>& findings) {
  const StoredTensor* embedding = FindEmbedding(checkpoint);
  const bool tied = IsTied(checkpoint);
  for (const std::string_view head : kHeads) {
    if (tied && model.Find(head) != nullptr) {
      findings.push_back(MakeFinding("tied-head-differs", head,
                                     "the head is quantized, and tied to the embedding"));
      continue;
    }
    const StoredTensor* weight = checkpoint.Find(std::string(head) + ".weight");
    if (weight == nullptr || embedding == nullptr) continue;
    const bool alike = weight->dtype == embedding->dtype && weight->shape == embedding->shape;
    if (alike && !read_data) continue;
    bool same = false;
    if (alike) {
      PREPACK_TRY_ASSIGN(const bool compared, SameBytes(checkpoint, *weight, *embedding));
      same = compared;
    }
    if (same) {
      findings.push_back(
          MakeFinding("tied-head-stored-twice", head, "the same bytes as " + embedding->name));
    } else if (tied) {
      findings.push_back(MakeFinding("tied-head-differs", head,
                                     "not the " + std::string(alike ? "bytes" : "dtype and shape") +
                                         " of " + embedding->name));
    }
  }
  return {};
}

const StoredTensor* TiedEmbedding(const Checkpoint& checkpoint, std::string_view head) {
  const bool is_head = std::ranges::any_of(
      kHeads, [&](std::string_view name) { return head == std::string(name) + ".weight"; });
  return is_head && IsTied(checkpoint) ? FindEmbedding(checkpoint) : nullptr;
}

}  // namespace prepack
