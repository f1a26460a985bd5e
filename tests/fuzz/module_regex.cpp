// Patterns of quantization configs on names of modules: a match ends soon, or says that it does
// not; one that begins at the start is also found by a search; and a pattern that is nothing but
// letters, digits and escaped dots is found where its text is.
//
// Input: the pattern up to a NUL, then the name.

#include "prepack/formats/regex.h"

#include <cctype>
#include <ctime>
#include <optional>
#include <string>

#include "fuzz/fuzz_target.h"

namespace prepack::fuzz {
namespace {

// Of the processor, in seconds. Far above the millisecond that is promised, as sanitizers take
// their time.
constexpr double kLongest = 2;

// The text that a pattern stands for that has no operators; none for all others.
std::optional<std::string> PlainText(std::string_view pattern) {
  std::string text;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const bool dot = pattern.substr(i).starts_with("\\.");
    const auto c = static_cast<unsigned char>(pattern[i]);
    if (!dot && std::isalnum(c) == 0 && c != '_') return std::nullopt;
    text += dot ? '.' : pattern[i];
    i += dot ? 1 : 0;
  }
  return text;
}

void Run(Input input) {
  const std::string_view pattern = input.TextToNul();
  const std::string_view name = input.Text().substr(0, 512);  // names of modules have no more
  const std::clock_t start = std::clock();
  const Result<ModuleRegex> regex = ModuleRegex::Compile(pattern, "input");
  if (!regex.ok()) return DemandGoodError(regex.status());
  Demand(PythonRegexForPcre(pattern, "input").ok(), "what compiles can be translated", pattern);
  const Result<bool> at_start = regex->MatchesStart(name);
  const Result<bool> anywhere = regex->Search(name);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  Demand(seconds < kLongest, "matching ends soon", pattern);
  DemandGoodError(at_start.status());
  DemandGoodError(anywhere.status());
  if (!at_start.ok() || !anywhere.ok()) return;
  Demand(*anywhere || !*at_start, "what matches at the start is found", pattern);
  if (const std::optional<std::string> text = PlainText(pattern)) {
    Demand(*at_start == name.starts_with(*text), "plain text matches itself", pattern);
    Demand(*anywhere == (name.find(*text) != std::string_view::npos), "plain text finds itself",
           pattern);
  }
}

}  // namespace
}  // namespace prepack::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  prepack::fuzz::Run({data, size});
  return 0;
}
