// Strict JSON on nlohmann's SAX parser: its DOM parser keeps the last of two equal keys and does
// not limit depth, and a config with two readings means different models to different loaders.

#include "prepack/container/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/status.h"

namespace prepack {
namespace {

// Walks over the text and leaves its position where the handler can see it, because nlohmann gives
// the offset only with its own errors.
class TrackingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  TrackingIterator(const char* at, const char** position) : at_(at), position_(position) {}

  reference operator*() const { return *at_; }
  TrackingIterator& operator++() {
    *position_ = ++at_;
    return *this;
  }
  friend bool operator==(const TrackingIterator& a, const TrackingIterator& b) {
    return a.at_ == b.at_;
  }

 private:
  const char* at_;
  const char** position_;
};

// "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error …" without the
// prefix: we give the byte instead.
std::string_view Reason(std::string_view message) {
  for (const std::string_view prefix : {"] ", "parse error", ": "}) {
    const size_t at = message.find(prefix);
    // Only the start of the message, because the rest may quote the file.
    if (at < 100) message.remove_prefix(at + prefix.size());
  }
  return message;
}

}  // namespace

Status JsonSax::Run(std::string_view text, std::string_view where) {
  where_ = where;
  begin_ = text.data();
  position_ = begin_;
  // nlohmann would overlook both: it takes NUL for the end of the text, and skips a byte order mark
  // (which JSON forbids and other loaders refuse).
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
    return Malformed(fmt::format("{}: byte {}", where, nul), "NUL in JSON text");
  if (text.starts_with("\xEF\xBB\xBF"))
    return Malformed(fmt::format("{}: byte 0", where), "a byte order mark precedes the JSON text");

  nlohmann::json_sax<Json>* const handler = this;
  const bool parsed = Json::sax_parse(TrackingIterator(begin_, &position_),
                                      TrackingIterator(begin_ + text.size(), &position_), handler);
  if (!parsed && status_.ok()) return Malformed(where, "not valid JSON");
  return std::move(status_);
}

bool JsonSax::Enter() {
  if (depth_ == max_depth_)
    return FailHere(fmt::format("nested more than {} levels deep", max_depth_));
  ++depth_;
  return true;
}

bool JsonSax::Fail(Status status) {
  status_ = std::move(status);
  return false;
}

bool JsonSax::FailHere(std::string_view what) {
  return Fail(Malformed(fmt::format("{}: byte {}", where_, offset()), what));
}

bool JsonSax::parse_error(size_t /*position*/, const std::string& /*last_token*/,
                          const nlohmann::detail::exception& error) {
  return FailHere(Printable(Reason(error.what())));
}

bool JsonSax::binary(binary_t& /*value*/) {
  return FailHere("binary value in JSON text");
}

namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr size_t kTextIndent = 2;

// The offset after the string that begins at `at`.
size_t EndOfString(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at + 1;
}

// The offset after the string, bracket, comma, colon or word (a number, true, NaN) that begins at
// `at`.
size_t EndOfToken(std::string_view text, size_t at) {
  constexpr std::string_view kMarks = "{}[],:";
  if (text[at] == '"') return EndOfString(text, at);
  if (kMarks.find(text[at]) != kMarks.npos) return at + 1;
  return std::min(text.find_first_of(" \t\r\n{}[],:\"", at), text.size());
}

bool IsOpening(char c) {
  return c == '{' || c == '[';
}
bool IsClosing(char c) {
  return c == '}' || c == ']';
}

// Calls `visit` with every token of the text.
template <typename Visitor>
void ForTokens(std::string_view text, Visitor visit) {
  size_t at = text.find_first_not_of(kSpace);
  while (at < text.size()) {
    const size_t end = std::min(EndOfToken(text, at), text.size());
    visit(text.substr(at, end - at));
    at = text.find_first_not_of(kSpace, end);
  }
}

std::string Decoded(std::string_view string) {
  const Json value = Json::parse(string, nullptr, /*allow_exceptions=*/false);
  return value.is_string() ? value.get<std::string>() : std::string(string);
}

}  // namespace

std::vector<TextMember> TextMembers(std::string_view object) {
  std::vector<TextMember> members;
  size_t depth = 0;
  bool in_value = false;
  ForTokens(object, [&](std::string_view token) {
    const char first = token.front();
    if (IsClosing(first)) --depth;
    const bool at_member = depth == 1;
    if (at_member && first == ',') {
      in_value = false;
    } else if (at_member && first == ':' && !in_value) {
      in_value = true;
    } else if (at_member && !in_value && first == '"') {
      members.push_back({Decoded(token), token, {}});
    } else if (in_value && depth > 0) {
      std::string_view& value = members.back().value;
      if (value.empty()) value = token;
      value = {value.data(), static_cast<size_t>(token.data() + token.size() - value.data())};
    }
    if (IsOpening(first)) ++depth;
  });
  return members;
}

std::string WithoutMember(std::string_view object, std::span<const std::string> path) {
  std::string text = "{";
  for (const TextMember& member : TextMembers(object)) {
    const bool is_meant = member.key == path.front();
    if (is_meant && path.size() == 1) continue;
    const bool inside = is_meant && member.value.starts_with('{');
    fmt::format_to(std::back_inserter(text), "{}{}:{}", text.size() == 1 ? "" : ",",
                   member.key_text,
                   inside ? WithoutMember(member.value, path.subspan(1)) : member.value);
  }
  return text + "}";
}

std::string Reindented(std::string_view value, size_t depth) {
  std::string text;
  char before = ' ';  // first character of the last token
  const auto break_line = [&] {
    text += '\n';
    text.append(kTextIndent * depth, ' ');
  };
  ForTokens(value, [&](std::string_view token) {
    const char first = token.front();
    if (IsClosing(first)) --depth;
    if (IsClosing(first) ? !IsOpening(before) : IsOpening(before) || before == ',') break_line();
    text += token;
    if (first == ':') text += ' ';
    if (IsOpening(first)) ++depth;
    before = first;
  });
  return text;
}

namespace {

// Numbers that JSON does not have, by the byte at which they begin.
using PythonNumbers = std::map<size_t, double>;

// The length of a number that is too large for a double, which Python takes for infinity; 0 if it
// is not such a number.
size_t LengthOfOverflow(std::string_view text, double& number) {
  const size_t length = std::min(text.find_first_not_of("+-.0123456789eE"), text.size());
  const std::string_view digits = text.substr(0, length);
  // Without an exponent, such a number has more than 300 digits.
  if (length == 0 || (digits.find_first_of("eE") == digits.npos && length < 300)) return 0;
  number = std::strtod(std::string(digits).c_str(), nullptr);
  return std::isinf(number) ? length : 0;
}

// Replaces them with a 0 and spaces, so that the rest of the text keeps its offsets.
PythonNumbers ReplacePythonNumbers(std::string& text) {
  struct Spelling {
    std::string_view text;
    double number;
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  static constexpr std::array kSpellings = {
      Spelling{"NaN", std::numeric_limits<double>::quiet_NaN()}, Spelling{"Infinity", kInfinity},
      Spelling{"-Infinity", -kInfinity}};
  constexpr std::string_view kBeforeValue = " \t\r\n,:[";
  PythonNumbers numbers;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_string && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      in_string = !in_string;
    } else if (!in_string && (i == 0 || kBeforeValue.find(text[i - 1]) != kBeforeValue.npos)) {
      const std::string_view rest = std::string_view(text).substr(i);
      const auto spelling = std::ranges::find_if(
          kSpellings, [&](const Spelling& known) { return rest.starts_with(known.text); });
      const bool is_spelled = spelling != kSpellings.end();
      double number = is_spelled ? spelling->number : 0;
      const size_t length = is_spelled ? spelling->text.size() : LengthOfOverflow(rest, number);
      if (length == 0) continue;
      numbers.emplace(i, number);
      text.replace(i, length, length, ' ');
      text[i] = '0';
      i += length - 1;
    }
  }
  return numbers;
}

// Builds the DOM bottom-up: a container is filled in its frame and moved into the one around it
// when it ends.
class DomBuilder : public JsonSax {
 public:
  DomBuilder(const JsonLimits& limits, PythonNumbers python_numbers, const JsonEntries* entries)
      : JsonSax(limits.max_depth),
        python_numbers_(std::move(python_numbers)),
        entries_(entries),
        values_left_(limits.max_values) {}

  Json TakeRoot() { return std::move(root_); }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override {
    // One more byte was read after the 0 that replaces the number.
    const auto python = value == 0 ? python_numbers_.find(offset() - 2) : python_numbers_.end();
    return python == python_numbers_.end() ? Add(value) : Add(python->second);
  }
  bool number_float(number_float_t value, const std::string& /*text*/) override {
    return Add(value);
  }
  bool string(std::string& value) override { return Add(std::move(value)); }

  bool start_object(size_t /*elements*/) override { return Begin(Json::object()); }
  bool start_array(size_t /*elements*/) override { return Begin(Json::array()); }
  bool end_array() override { return End(); }
  bool key(std::string& value) override {
    frames_.back().key = std::move(value);
    frames_.back().key_offsets.push_back(offset());
    return true;
  }
  bool end_object() override { return CheckKeys(frames_.back()) && End(); }

 private:
  struct Frame {
    Json container;
    std::string key;                  // of the value that comes next, in an object
    std::vector<size_t> key_offsets;  // behind each key, in an object
  };

  bool Count() {
    if (values_left_ == 0) return FailHere("too many values");
    --values_left_;
    return true;
  }

  bool Begin(Json container) {
    if (!Count() || !Enter()) return false;
    frames_.push_back({std::move(container), {}, {}});
    return true;
  }

  bool End() {
    Leave();
    Json container = std::move(frames_.back().container);
    frames_.pop_back();
    Append(std::move(container));
    return true;
  }

  bool Add(Json value) {
    if (!Count()) return false;
    Append(std::move(value));
    return true;
  }

  void Append(Json value) {
    if (frames_.empty()) {
      root_ = std::move(value);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.container.is_array()) {
      frame.container.get_ref<Json::array_t&>().push_back(std::move(value));
    } else {
      if (IsEntry()) {
        entries_->visit(frame.key, value);
        value = nullptr;
      }
      // This bypasses the insertion of ordered_map, which searches all keys each time.
      Members(frame).emplace_back(std::move(frame.key), std::move(value));
    }
  }

  // Is what comes next one of the members that are not kept?
  bool IsEntry() const {
    return entries_ != nullptr && frames_.size() == 2 && frames_.front().container.is_object() &&
           frames_.front().key == entries_->of;
  }

  static Json::object_t::Container& Members(Frame& frame) {
    return frame.container.get_ref<Json::object_t&>();
  }

  // By sorting when the object is complete: unlike a hash table, this is fast for any number and
  // choice of keys.
  bool CheckKeys(Frame& frame) {
    const Json::object_t::Container& members = Members(frame);
    if (members.size() < 2) return true;
    std::vector<size_t> order(members.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const int difference = members[a].first.compare(members[b].first);
      return difference != 0 ? difference < 0 : a < b;
    });
    for (size_t i = 1; i < order.size(); ++i) {
      if (members[order[i - 1]].first != members[order[i]].first) continue;
      return Fail(
          Malformed(fmt::format("{}: byte {}", where(), frame.key_offsets[order[i]]),
                    fmt::format("duplicate key \"{}\"", Printable(members[order[i]].first))));
    }
    return true;
  }

  Json root_;
  std::vector<Frame> frames_;
  const PythonNumbers python_numbers_;
  const JsonEntries* entries_;
  size_t values_left_;
};

}  // namespace

Result<Json> ParseJsonStrict(std::string_view text, std::string_view where,
                             const JsonLimits& limits, const JsonEntries* entries) {
  std::string plain;
  PythonNumbers python_numbers;
  if (limits.python_numbers) {
    plain = text;
    python_numbers = ReplacePythonNumbers(plain);
    text = plain;
  }
  DomBuilder builder(limits, std::move(python_numbers), entries);
  PREPACK_TRY(builder.Run(text, where));
  return builder.TakeRoot();
}

const Json* JsonMember(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

}  // namespace prepack
