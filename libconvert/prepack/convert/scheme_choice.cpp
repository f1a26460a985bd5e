// --scheme: which arithmetic a module is packed for. A choice that matches no module is an error,
// because a typo in the pattern would otherwise pack something else than the user asked for.

#include "prepack/convert/scheme_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/io/file.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

constexpr std::array<std::pair<WantedScheme, std::string_view>, 6> kNames = {{
    {WantedScheme::kAuto, "auto"},
    {WantedScheme::kW4A16, "w4a16"},
    {WantedScheme::kW4A8, "w4a8"},
    {WantedScheme::kW8A8, "w8a8"},
    {WantedScheme::kW8A16, "w8a16"},
    {WantedScheme::kBF16, "bf16"},
}};

std::optional<WantedScheme> SchemeFromName(std::string_view name) {
  for (const auto& [scheme, known] : kNames) {
    if (known == name) return scheme;
  }
  return std::nullopt;
}

std::string_view NameOf(WantedScheme scheme) {
  return kNames[static_cast<size_t>(scheme)].second;
}

}  // namespace

std::string SchemeChoice::Text() const {
  return fmt::format("--scheme {}{}{}", pattern, pattern.empty() ? "" : "=", NameOf(scheme));
}

Result<SchemeChoice> ParseSchemeChoice(std::string_view text) {
  PREPACK_TRY_ASSIGN(PatternOption option, SplitPatternOption("--scheme", text));
  SchemeChoice choice;
  choice.pattern = std::move(option.pattern);
  const std::string& name = option.value;
  const std::optional<WantedScheme> scheme = SchemeFromName(name);
  if (!scheme) {
    std::vector<std::string> known(kNames.size());
    std::ranges::transform(kNames, known.begin(), [](const auto& row) { return row.second; });
    return Usage("--scheme", "unknown scheme")
        .Found(name)
        .Expected(fmt::format("[PATTERN=]{}", fmt::join(known, "|")))
        .Hint(DidYouMean(name, known));
  }
  choice.scheme = *scheme;
  return choice;
}

Result<SchemeFile> ReadSchemeFile(const std::filesystem::path& path) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 20;
  PREPACK_TRY_ASSIGN(const std::string text, ReadTextFile(path, kMostBytes));
  SchemeFile file;
  std::string_view rest = text;
  for (size_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = Trimmed(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty()) continue;
    if (line.starts_with('#')) {
      const std::string_view comment = Trimmed(line.substr(1));
      if (!comment.empty()) file.comments.emplace_back(comment);
      continue;
    }
    Result<SchemeChoice> choice = ParseSchemeChoice(line);
    if (!choice.ok()) {
      return std::move(choice).status().In(fmt::format("{}: line {}", path.string(), number));
    }
    file.choices.push_back(*std::move(choice));
  }
  if (file.choices.empty()) return Usage(path.string(), "the file has no scheme");
  return file;
}

Result<SchemeChooser> SchemeChooser::Make(std::span<const SchemeChoice> choices,
                                          const Target& target) {
  SchemeChooser chooser;
  chooser.eight_bit_experts_ = target.eight_bit_experts;
  chooser.eight_bit_int8_experts_ = target.eight_bit_int8_experts;
  for (const SchemeChoice& choice : choices) {
    PREPACK_TRY_ASSIGN(ModulePattern modules, ModulePattern::Make(choice.pattern, choice.Text()));
    chooser.rules_.push_back({.choice = choice, .modules = std::move(modules)});
  }
  return chooser;
}

std::optional<ActivationScheme> SchemeChooser::ByDefault(std::string_view module,
                                                         const Scheme& weights) const {
  const bool wide = weights.activations.type == ActivationType::kNone;
  if (eight_bit_experts_ && wide && weights.code == CodeType::kU4 && IsExpert(module)) {
    if (const auto eight = ActivationsFor(weights, WantedScheme::kW4A8)) return eight;
  }
  if (eight_bit_int8_experts_ && wide && weights.code == CodeType::kS8 && IsExpert(module)) {
    if (const auto eight = ActivationsFor(weights, WantedScheme::kW8A8)) return eight;
  }
  return ActivationsFor(weights, WantedScheme::kAuto);
}

Result<Arithmetic> SchemeChooser::ArithmeticOf(std::string_view module, const Scheme& weights) {
  Arithmetic chosen{.activations = *ByDefault(module, weights)};
  for (Rule& rule : rules_) {
    PREPACK_TRY_ASSIGN(const bool found, rule.modules.IsFor(module));
    if (!found) continue;
    const std::optional<ActivationScheme> wanted =
        rule.choice.scheme == WantedScheme::kAuto ? ByDefault(module, weights)
                                                  : ActivationsFor(weights, rule.choice.scheme);
    if (!wanted) continue;
    rule.used = true;
    chosen = {.activations = *wanted, .in_bf16 = rule.choice.scheme == WantedScheme::kBF16};
  }
  return chosen;
}

namespace {

// Of the weights that a scheme is for.
std::string_view WidthOf(WantedScheme scheme) {
  if (scheme == WantedScheme::kBF16) return "";
  return NameOf(scheme).starts_with("w4") ? " with weights of 4 bits" : " with weights of 8 bits";
}

}  // namespace

Status SchemeChooser::CheckAllWereUsed() const {
  for (const Rule& rule : rules_) {
    if (rule.used || rule.choice.scheme == WantedScheme::kAuto) continue;
    return Usage(rule.choice.Text(), "matches no module of the checkpoint")
        .Expected(fmt::format("{}modules{}",
                              rule.modules.is_for_all() ? "" : "a pattern that matches ",
                              WidthOf(rule.choice.scheme)))
        .Hint("`prepack inspect` lists the modules and their schemes");
  }
  return {};
}

}  // namespace prepack
