#include "prepack/convert/gguf/expert_stacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "prepack/container/model_config.h"
#include "prepack/convert/gguf/sources.h"
#include "prepack/model/module_name.h"
#include "prepack/packed/split_experts.h"

namespace prepack::gguf {
namespace {

constexpr size_t kMostExperts = 1 << 16;

// A stack, and what it is made of, by the ends of names.
struct StackRule {
  std::string_view model_type;
  std::string_view experts;  // where the experts are, below the layer
  std::string_view stack;    // the name in place of that
  std::array<std::string_view, 2> parts;
  Joined joined = Joined::kBehindEachOther;
  bool transposed = false;
};

// As the classes of transformers have them.
constexpr std::array<StackRule, 6> kRules = {{
    {kGptOss,
     ".experts",
     ".experts.gate_up_proj",
     {"gate_proj.weight", "up_proj.weight"},
     Joined::kAlternating,
     /*transposed=*/true},
    {kGptOss,
     ".experts",
     ".experts.gate_up_proj_bias",
     {"gate_proj.bias", "up_proj.bias"},
     Joined::kAlternating},
    {kGptOss, ".experts", ".experts.down_proj", {"down_proj.weight"}, {}, /*transposed=*/true},
    {kGptOss, ".experts", ".experts.down_proj_bias", {"down_proj.bias"}},
    {"granitemoehybrid",
     ".block_sparse_moe.experts",
     ".block_sparse_moe.input_linear.weight",
     {"w1.weight", "w3.weight"}},
    {"granitemoehybrid",
     ".block_sparse_moe.experts",
     ".block_sparse_moe.output_linear.weight",
     {"w2.weight"}},
}};

std::span<const std::string_view> PartsOf(const StackRule& rule) {
  return std::span(rule.parts).first(rule.parts[1].empty() ? 1 : 2);
}

class StackFinder {
 public:
  explicit StackFinder(std::string_view model_type) : model_type_(model_type) {}

  Status Add(size_t number, std::string_view name) {
    const size_t dot = name.rfind('.');
    if (dot == std::string_view::npos) return {};
    const auto expert = ParseExpertName(name.substr(0, dot));
    if (!expert || expert->stored_stacked) return {};
    // The projection and what it has: "gate_proj.weight".
    const std::string_view end = name.substr(dot - expert->projection.size());
    for (const StackRule& rule : kRules) {
      if (rule.model_type != model_type_ || !expert->mixture.ends_with(rule.experts)) continue;
      const auto parts = PartsOf(rule);
      const auto part = std::ranges::find(parts, end);
      if (part == parts.end()) continue;
      if (expert->index >= kMostExperts) {
        return Malformed(std::string(name), "no expert can have this number");
      }
      const std::string_view above =
          expert->mixture.substr(0, expert->mixture.size() - rule.experts.size());
      Put(rule, fmt::format("{}{}", above, rule.stack), expert->index,
          static_cast<size_t>(part - parts.begin()), number);
    }
    return {};
  }

  Result<std::vector<ExpertStack>> Take() {
    std::vector<ExpertStack> stacks;
    for (auto& [name, found] : found_) {
      ExpertStack stack{
          .name = name, .joined = found.rule->joined, .transposed = found.rule->transposed};
      for (size_t expert = 0; expert < found.experts.size(); ++expert) {
        const auto parts = PartsOf(*found.rule);
        std::vector<size_t>& numbers = stack.experts.emplace_back();
        for (size_t i = 0; i < parts.size(); ++i) {
          const std::optional<size_t> number = found.experts[expert][i];
          if (!number) {
            return Malformed(name, fmt::format("expert {} has no {}", expert, parts[i]));
          }
          numbers.push_back(*number);
        }
      }
      stacks.push_back(std::move(stack));
    }
    return stacks;
  }

 private:
  struct Found {
    const StackRule* rule = nullptr;
    std::vector<std::array<std::optional<size_t>, 2>> experts;
  };

  void Put(const StackRule& rule, const std::string& name, uint64_t expert, size_t part,
           size_t number) {
    Found& found = found_[name];
    found.rule = &rule;
    if (found.experts.size() <= expert) found.experts.resize(expert + 1);
    found.experts[expert][part] = number;
  }

  std::string_view model_type_;
  std::map<std::string, Found> found_;
};

}  // namespace

Result<std::vector<ExpertStack>> FindExpertStacks(const Json& config,
                                                  const std::vector<Source>& sources) {
  StackFinder finder(ModelTypeOf(config));
  for (size_t i = 0; i < sources.size(); ++i) PREPACK_TRY(finder.Add(i, sources[i].name));
  return finder.Take();
}

}  // namespace prepack::gguf
