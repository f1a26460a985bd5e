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
  static constexpr std::array<std::string_view, 11> kEmbeddings = {"embed_tokens",
                                                                   "embed_tokens_per_layer",
                                                                   "word_embeddings",
                                                                   "wte",
                                                                   "wpe",
                                                                   "tok_embeddings",
                                                                   "embed_in",
                                                                   "embeddings",
                                                                   "embedding",
                                                                   "position_embeddings",
                                                                   "embed"};
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

namespace {

// The end of the set that begins at pattern[at], behind its ']'; npos where none ends it.
size_t EndOfSet(std::string_view pattern, size_t at) {
  size_t first = at + 1;
  if (first < pattern.size() && pattern[first] == '!') ++first;
  // A ']' in the first place is a member.
  const size_t close = pattern.find(']', first + 1);
  return close == std::string_view::npos ? close : close + 1;
}

// Is the character in the set, whose brackets are left out?
bool IsInSet(std::string_view set, char c) {
  const bool is_not = set.front() == '!';
  if (is_not) set.remove_prefix(1);
  bool found = false;
  for (size_t i = 0; i < set.size(); ++i) {
    const bool range = i + 2 < set.size() && set[i + 1] == '-';
    found = found || (range ? set[i] <= c && c <= set[i + 2] : set[i] == c);
    if (range) i += 2;
  }
  return found != is_not;
}

// Where the pattern goes on if its element at `at`, which is no star, takes the character; npos if
// it does not.
size_t TakeOne(std::string_view pattern, size_t at, char c) {
  if (at >= pattern.size()) return std::string_view::npos;
  if (pattern[at] == '?') return at + 1;
  if (pattern[at] == '[') {
    const size_t end = EndOfSet(pattern, at);
    if (end != std::string_view::npos) {
      return IsInSet(pattern.substr(at + 1, end - at - 2), c) ? end : std::string_view::npos;
    }
  }
  return pattern[at] == c ? at + 1 : std::string_view::npos;
}

}  // namespace

bool MatchesWildcard(std::string_view pattern, std::string_view name) {
  constexpr size_t kNone = std::string_view::npos;
  size_t at = 0;        // in the pattern
  size_t star = kNone;  // behind the last star
  size_t retry = 0;     // what it has not taken yet begins here
  for (size_t i = 0; i < name.size();) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = ++at;
      retry = i;
      continue;
    }
    const size_t next = TakeOne(pattern, at, name[i]);
    if (next != kNone) {
      at = next;
      ++i;
      continue;
    }
    if (star == kNone) return false;
    at = star;
    i = ++retry;
  }
  while (at < pattern.size() && pattern[at] == '*') ++at;
  return at == pattern.size();
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
