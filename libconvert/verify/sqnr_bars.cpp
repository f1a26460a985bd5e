#include "verify/sqnr_bars.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <utility>

namespace prepack {
namespace {

constexpr double kMaxDb = 200;

std::string TextOf(const SqnrBar& bar) {
  return fmt::format("--min-sqnr '{}={}'", bar.pattern, bar.decibel);
}

}  // namespace

Result<SqnrBar> ParseSqnrBar(std::string_view text) {
  const size_t equals = text.rfind('=');
  const bool has_pattern = equals != std::string_view::npos;
  SqnrBar bar;
  if (has_pattern) bar.pattern = text.substr(0, equals);
  if (has_pattern && bar.pattern.empty()) {
    return Usage("--min-sqnr", "there is no pattern in front of \"=\"").Found(text);
  }
  const std::string number(has_pattern ? text.substr(equals + 1) : text);
  char* end = nullptr;
  bar.decibel = std::strtod(number.c_str(), &end);
  const bool whole = !number.empty() && end == number.c_str() + number.size();
  // With NaN no figure would be too low: it must not pass.
  if (whole && bar.decibel >= 0 && bar.decibel <= kMaxDb) return bar;
  return Usage("--min-sqnr", "not a number of dB")
      .Found(text)
      .Expected(fmt::format("[PATTERN=]DB with 0 to {} dB", kMaxDb));
}

double KernelBar(DType output) {
  if (output == DType::kBF16) return kMinKernelBF16Db;
  return output == DType::kF16 ? kMinKernelF16Db : kMinKernelF32Db;
}

double DefaultEndToEndBar(const ActivationScheme& activations) {
  switch (activations.type) {
    case ActivationType::kNone:
      return kMinEndToEndDb;
    case ActivationType::kInt:
      return kMinEndToEndInt8Db;
    case ActivationType::kFloat:
      return kMinEndToEndFp8Db;
  }
  return kMinEndToEndDb;
}

Result<SqnrBars> SqnrBars::Make(std::span<const SqnrBar> bars) {
  SqnrBars made;
  for (const SqnrBar& bar : bars) {
    Rule rule{.bar = bar, .regex = std::nullopt};
    if (!bar.pattern.empty()) {
      Result<ModuleRegex> regex = ModuleRegex::Compile(bar.pattern, TextOf(bar));
      // What a pattern of a file would make malformed is a mistake of the user here.
      if (!regex.ok()) return Usage(TextOf(bar), regex.status().ToString());
      rule.regex = *std::move(regex);
    }
    made.rules_.push_back(std::move(rule));
  }
  return made;
}

Result<std::optional<double>> SqnrBars::Of(std::string_view module) {
  std::optional<double> bar;
  for (Rule& rule : rules_) {
    if (rule.regex) {
      const Result<bool> found = rule.regex->Search(module);
      if (!found.ok()) return found.status();
      if (!*found) continue;
    }
    rule.used = true;
    bar = rule.bar.decibel;
  }
  return bar;
}

Status SqnrBars::CheckAllWereUsed() const {
  for (const Rule& rule : rules_) {
    if (rule.used) continue;
    return Usage(TextOf(rule.bar), "its pattern is found in no packed module")
        .Hint("`prepack inspect` lists the modules");
  }
  return {};
}

}  // namespace prepack
