#include "prepack/inspect/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string>
#include <vector>

#include "catch.h"
#include "prepack/base/random.h"
#include "test_seed.h"

namespace prepack::testing {
namespace {

std::vector<NamePattern> FoldTexts(const std::vector<std::string>& names) {
  const std::vector<std::string_view> views(names.begin(), names.end());
  return FoldNames(views);
}

std::vector<std::string> TextsOf(const std::vector<NamePattern>& patterns) {
  std::vector<std::string> texts;
  for (const NamePattern& pattern : patterns) texts.push_back(pattern.text);
  return texts;
}

uint64_t NumberAt(std::string_view& text) {
  uint64_t number = 0;
  const char* end = std::from_chars(text.data(), text.data() + text.size(), number).ptr;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

// The numbers of "0,2..31}…", which is taken off.
std::vector<uint64_t> TakeSet(std::string_view& text) {
  std::vector<uint64_t> set;
  while (true) {
    const uint64_t first = NumberAt(text);
    uint64_t last = first;
    if (text.starts_with("..")) {
      text.remove_prefix(2);
      last = NumberAt(text);
    }
    for (uint64_t number = first; number <= last; ++number) set.push_back(number);
    const bool is_end = text.front() == '}';
    text.remove_prefix(1);
    if (is_end) return set;
  }
}

// What a reader takes a pattern for.
std::vector<std::string> UnfoldPattern(const NamePattern& pattern) {
  if (pattern.names == 1) return {pattern.text};
  std::vector<std::string> names = {""};
  std::string_view text = pattern.text;
  while (!text.empty()) {
    const size_t brace = text.find('{');
    for (std::string& name : names) name += text.substr(0, brace);
    if (brace == std::string_view::npos) break;
    text.remove_prefix(brace + 1);
    const std::vector<uint64_t> set = TakeSet(text);
    std::vector<std::string> longer;
    for (const std::string& name : names) {
      for (const uint64_t number : set) longer.push_back(fmt::format("{}{}", name, number));
    }
    names = std::move(longer);
  }
  return names;
}

void CheckUnfolds(std::vector<std::string> names) {
  std::vector<std::string> unfolded;
  for (const NamePattern& pattern : FoldTexts(names)) {
    const std::vector<std::string> these = UnfoldPattern(pattern);
    CHECK(these.size() == pattern.names);
    CHECK(std::ranges::find(these, pattern.first) != these.end());
    unfolded.insert(unfolded.end(), these.begin(), these.end());
  }
  std::ranges::sort(names);
  std::ranges::sort(unfolded);
  CHECK(unfolded == names);
}

TEST_CASE("layers and experts become one pattern each") {
  std::vector<std::string> names;
  for (int layer = 0; layer < 32; ++layer) {
    names.push_back(fmt::format("model.layers.{}.mlp.down_proj", layer));
    for (int expert = 0; expert < 12; ++expert) {
      names.push_back(fmt::format("model.layers.{}.mlp.experts.{}.up_proj", layer, expert));
    }
  }
  const std::vector<NamePattern> patterns = FoldTexts(names);
  CHECK(TextsOf(patterns) ==
        std::vector<std::string>{"model.layers.{0..31}.mlp.down_proj",
                                 "model.layers.{0..31}.mlp.experts.{0..11}.up_proj"});
  CHECK(patterns[0].names == 32);
  CHECK(patterns[1].names == 32 * 12);
  CHECK(patterns[1].first == "model.layers.0.mlp.experts.0.up_proj");
}

TEST_CASE("gaps are written, two neighbours are not a range, one number has no braces") {
  CHECK(TextsOf(FoldTexts({"a.0", "a.2", "a.3", "a.4", "a.10"})) ==
        std::vector<std::string>{"a.{0,2..4,10}"});
  CHECK(TextsOf(FoldTexts({"a.1", "a.0"})) == std::vector<std::string>{"a.{0,1}"});
  CHECK(TextsOf(FoldTexts({"a.7.b.0", "a.7.b.1"})) == std::vector<std::string>{"a.7.b.{0,1}"});
  CHECK(TextsOf(FoldTexts({"lm_head", "a.5"})) == std::vector<std::string>{"a.5", "lm_head"});
  CHECK(TextsOf(FoldTexts({"w1", "w3"})) == std::vector<std::string>{"w{1,3}"});
  CHECK(FoldTexts({}).empty());
}

TEST_CASE("what is no full rectangle of numbers is several patterns") {
  CHECK(TextsOf(FoldTexts({"l.0.e.0", "l.0.e.1", "l.1.e.0", "l.1.e.1", "l.2.e.0"})) ==
        std::vector<std::string>{"l.{0,1}.e.{0,1}", "l.2.e.0"});
}

TEST_CASE("patterns come along the depth of the model") {
  CHECK(TextsOf(FoldTexts({"l.10.a", "l.11.a", "l.2.b", "l.3.b"})) ==
        std::vector<std::string>{"l.{2,3}.b", "l.{10,11}.a"});
}

TEST_CASE("names that could be mistaken for patterns stand for themselves") {
  const std::vector<std::string> names = {"a.{0..3}.b", "a.{}.b", "a.0.b",  "a.{1",  "a.1}",
                                          "a.{2",       "a.1.b",  "a.01.b", "a.02.b"};
  CheckUnfolds(names);
  const std::vector<std::string> texts = TextsOf(FoldTexts(names));
  CHECK(texts.size() == names.size() - 1);
  CHECK(std::ranges::find(texts, "a.{0,1}.b") != texts.end());
  CheckUnfolds({"", "0", "00", "1", std::string("\0", 1),
                std::string("\0"
                            "1",
                            2),
                "..", ",", "\xff"});
}

TEST_CASE("numbers of any length and any number of them are names at most") {
  const std::string long_number(300, '9');
  CheckUnfolds({"a." + long_number, "a.1", "a." + long_number + "9", "a.2"});
  CheckUnfolds({"a.999999999999999999", "a.999999999999999998", "a.1000000000000000000"});
  std::string many;
  for (int i = 0; i < 20000; ++i) many += fmt::format("{}.", i % 10);
  CheckUnfolds({many + "0", many + "1", "1." + many, "2." + many});
  // The first eight of them are folded.
  CHECK(TextsOf(FoldTexts({"1.1.1.1.1.1.1.1.1", "1.1.1.1.1.1.1.2.1", "1.1.1.1.1.1.1.1.2"})) ==
        std::vector<std::string>{"1.1.1.1.1.1.1.{1,2}.1", "1.1.1.1.1.1.1.1.2"});
}

TEST_CASE("unfolding patterns gives exactly the names") {
  SplitMix64 random(Seed(29));
  for (int round = 0; round < 300; ++round) {
    std::set<std::string> names;
    const uint64_t count = random.Below(60);
    for (uint64_t i = 0; i < count; ++i) {
      names.insert(fmt::format("l{}.e{}.{}{}", random.Below(4), random.Below(5),
                               random.Below(2) == 0 ? "w" : "v.", random.Below(3)));
    }
    CheckUnfolds({names.begin(), names.end()});
  }
}

TEST_CASE("a hundred thousand names are few patterns") {
  std::vector<std::string> names;
  for (int layer = 0; layer < 61; ++layer) {
    for (int expert = 0; expert < 547; ++expert) {
      if (layer == 7 && expert == 5) continue;
      for (const char* part : {"gate", "up", "down"}) {
        names.push_back(fmt::format("model.layers.{}.mlp.experts.{}.{}_proj", layer, expert, part));
      }
    }
  }
  REQUIRE(names.size() > 100'000);
  const std::vector<NamePattern> patterns = FoldTexts(names);
  CHECK(patterns.size() == 6);
  CHECK(patterns[1].text == "model.layers.{0..6,8..60}.mlp.experts.{0..546}.gate_proj");
  size_t unfolded = 0;
  for (const NamePattern& pattern : patterns) unfolded += pattern.names;
  CHECK(unfolded == names.size());
}

}  // namespace
}  // namespace prepack::testing
