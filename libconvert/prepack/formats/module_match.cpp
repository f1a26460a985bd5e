#include "prepack/formats/module_match.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/formats/finding.h"
#include "prepack/model/module_name.h"

namespace prepack {

namespace {

constexpr std::string_view kRegexPrefix = "re:";

}  // namespace

ModuleClass ClassOfModule(std::string_view module) {
  // Names that the model families of transformers give their nn.Embedding layers. "embed_out" and
  // "lm_head" are linear.
  static constexpr std::array<std::string_view, 10> kEmbeddings = {
      "embed_tokens", "embed_tokens_per_layer", "word_embeddings", "wte",
      "wpe",          "tok_embeddings",         "embed_in",        "embeddings",
      "embedding",    "position_embeddings"};
  const std::string_view last = LastPart(module);
  const bool embedding =
      std::find(kEmbeddings.begin(), kEmbeddings.end(), last) != kEmbeddings.end();
  return embedding ? ModuleClass::kEmbedding : ModuleClass::kLinear;
}

ConfigPattern::ConfigPattern(std::string text, std::optional<ModuleRegex> regex)
    : text_(std::move(text)), regex_(std::move(regex)) {}

Result<ConfigPattern> ConfigPattern::Parse(std::string_view text, std::string_view where) {
  if (!text.starts_with(kRegexPrefix)) return ConfigPattern(std::string(text), std::nullopt);
  PREPACK_TRY_ASSIGN(ModuleRegex regex,
                     ModuleRegex::Compile(text.substr(kRegexPrefix.size()), where));
  return ConfigPattern(std::string(text), std::move(regex));
}

bool ConfigPattern::MatchesClass(ModuleClass module_class) const {
  if (regex_) return false;
  switch (module_class) {
    case ModuleClass::kLinear:
      return text_ == "Linear" || text_ == "LinearBase";  // the latter is vLLM's name for it
    case ModuleClass::kEmbedding:
      return text_ == "Embedding";
  }
  return false;
}

bool ConfigPattern::LooksLikeClass() const {
  return !regex_ && !text_.empty() && text_[0] >= 'A' && text_[0] <= 'Z' &&
         text_.find('.') == std::string::npos;
}

Status CheckModuleName(std::string_view module) {
  if (module.size() > kMaxModuleNameBytes) {
    return Unsupported(module.substr(0, kMaxModuleNameBytes), "the name of the module is too long")
        .Found(fmt::format("{} bytes", module.size()))
        .Expected(fmt::format("at most {}", kMaxModuleNameBytes))
        .Id(FindingId("module-name-unusable"));
  }
  const bool ascii = std::all_of(module.begin(), module.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (ascii) return {};
  return Unsupported(module, "the name of the module has characters outside ASCII")
      .Id(FindingId("module-name-unusable"));
}

namespace {

constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

}  // namespace

std::optional<RuleOrder> OrderOfCopy(const std::vector<std::string_view>& ours,
                                     const std::vector<std::string_view>& theirs,
                                     std::string where) {
  if (ours == theirs) return std::nullopt;
  std::unordered_map<std::string_view, size_t> places;
  for (const std::string_view key : theirs) places.emplace(key, places.size());
  RuleOrder order{.where = std::move(where), .rank = {}};
  for (const std::string_view key : ours) {
    const auto place = places.find(key);
    order.rank.push_back(place == places.end() ? kNowhere : place->second);
  }
  return order;
}

std::string OrderDiffers(std::string_view ours, std::string_view theirs, std::string_view where) {
  return fmt::format(
      "two rules match the module and mean different things: \"{}\" comes first here and counts, "
      "as "
      "in transformers and vLLM, but \"{}\" comes first in {}",
      Printable(ours), Printable(theirs), where);
}

}  // namespace prepack
