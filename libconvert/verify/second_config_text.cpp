#include "verify/second_config_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status.h"

namespace prepack {
namespace {

// Walks over the values of a document and notes those that are no containers, each with the keys
// that lead to it. An object that held nothing but a declaration is empty without it.
class ValueWalk {
 public:
  explicit ValueWalk(std::string_view text) : left_(text) {}

  // "a/b: 1", in the order of the text.
  std::vector<std::string> Take() {
    for (std::string_view token = Next(); !token.empty(); token = Next()) Visit(token);
    return std::move(values_);
  }

 private:
  std::string_view Next() {
    left_.remove_prefix(std::min(left_.find_first_not_of(" \t\r\n"), left_.size()));
    if (left_.empty()) return {};
    size_t length = 1;
    if (left_[0] == '"') {
      bool escaped = false;
      while (length < left_.size() && (escaped || left_[length] != '"')) {
        escaped = !escaped && left_[length] == '\\';
        ++length;
      }
      ++length;
    } else if (std::string_view("{}[]:,").find(left_[0]) == std::string_view::npos) {
      length = std::min(left_.find_first_of(" \t\r\n{}[]:,\""), left_.size());
    }
    const std::string_view token = left_.substr(0, length);
    left_.remove_prefix(token.size());
    return token;
  }

  void Visit(std::string_view token) {
    const char kind = token[0];
    if (kind == '{' || kind == '[') {
      open_.push_back(kind == '{' ? std::string() : "[]");
      awaits_key_ = kind == '{';
    } else if (kind == '}' || kind == ']') {
      if (!open_.empty()) open_.pop_back();
      awaits_key_ = false;
    } else if (kind == ',') {
      awaits_key_ = !open_.empty() && open_.back() != "[]";
    } else if (kind != ':' && awaits_key_) {
      open_.back() = token;
      awaits_key_ = false;
    } else if (kind != ':') {
      Note(token);
    }
  }

  void Note(std::string_view value) {
    const bool declares = std::ranges::any_of(open_, [](const std::string& key) {
      return key == "\"quantization_config\"" || key == "\"compression_config\"";
    });
    if (!declares) values_.push_back(fmt::format("{}: {}", fmt::join(open_, "/"), value));
  }

  std::string_view left_;
  std::vector<std::string> open_;  // the key in each open object; "[]" in an array
  bool awaits_key_ = false;
  std::vector<std::string> values_;
};

}  // namespace

std::string WhyConfigDiffers(std::string_view source, std::string_view packed) {
  const std::vector<std::string> expected = ValueWalk(source).Take();
  const std::vector<std::string> found = ValueWalk(packed).Take();
  const auto [in_source, in_packed] = std::ranges::mismatch(expected, found);
  if (in_source == expected.end() && in_packed == found.end()) return "";
  return fmt::format("found {}, expected {}",
                     in_packed == found.end() ? "nothing" : Printable(*in_packed),
                     in_source == expected.end() ? "nothing" : Printable(*in_source));
}

}  // namespace prepack
