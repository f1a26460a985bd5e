#include "verify/sqnr_bars.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "formats/module_pattern.h"

namespace prepack {
namespace {

constexpr double kMaxDb = 200;

std::string TextOf(const SqnrBar& bar) {
  return fmt::format("--min-sqnr '{}={}'", bar.pattern, bar.decibel);
}

}  // namespace

Result<SqnrBar> ParseSqnrBar(std::string_view text) {
  Result<PatternOption> option = SplitPatternOption("--min-sqnr", text);
  if (!option.ok()) return option.status();
  const std::string& number = option->value;
  SqnrBar bar;
  bar.pattern = std::move(option->pattern);
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

Result<SqnrBars> SqnrBars::Make(std::span<const SqnrBar> bars,
                                std::span<const std::string> modules) {
  SqnrBars made;
  for (const SqnrBar& bar : bars) {
    const Result<ModulePattern> pattern = ModulePattern::Make(bar.pattern, TextOf(bar));
    if (!pattern.ok()) return pattern.status();
    bool used = false;
    for (const std::string& module : modules) {
      const Result<bool> found = pattern->IsFor(module);
      if (!found.ok()) return found.status();
      if (!*found) continue;
      made.decibel_[module] = bar.decibel;
      used = true;
    }
    if (!used) {
      return Usage(TextOf(bar), "its pattern is found in no packed module")
          .Hint("`prepack inspect` lists the modules");
    }
  }
  return made;
}

std::optional<double> SqnrBars::Of(const std::string& module) const {
  const auto found = decibel_.find(module);
  return found == decibel_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace prepack
