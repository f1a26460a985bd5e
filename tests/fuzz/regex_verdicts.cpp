// Reads lines of JSON, [pattern, text], and prints for each what the library says of it, as JSON:
// whether the pattern matches at the start of the text and whether it is found in it, or why not.
// For regex_verdicts_test.py, which asks Python's `re` the same.

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "fuzz/fuzz_target.h"
#include "prepack/formats/regex.h"

namespace prepack::fuzz {
namespace {

nlohmann::json Refusal(const Status& status) {
  DemandGoodError(status);
  const bool malformed = status.kind() == ErrorKind::kMalformed;
  return {{malformed ? "malformed" : "unsupported", status.ToString()}};
}

nlohmann::json Verdict(const std::string& pattern, const std::string& text) {
  const Result<ModuleRegex> regex = ModuleRegex::Compile(pattern, "pattern");
  if (!regex.ok()) return Refusal(regex.status());
  const Result<bool> match = regex->MatchesStart(text);
  if (!match.ok()) return Refusal(match.status());
  const Result<bool> search = regex->Search(text);
  if (!search.ok()) return Refusal(search.status());
  return {{"match", *match}, {"search", *search}};
}

}  // namespace
}  // namespace prepack::fuzz

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const nlohmann::json asked = nlohmann::json::parse(line, nullptr, false);
    prepack::fuzz::Demand(asked.is_array() && asked.size() == 2, "a line is [pattern, text]", line);
    std::puts(prepack::fuzz::Verdict(asked[0], asked[1]).dump().c_str());
  }
  return 0;
}
