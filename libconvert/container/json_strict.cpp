#include "container/json_strict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "container/json_sax.h"

namespace prepack {
namespace {

// Numbers that JSON does not have, by the byte that they begin at.
using PythonNumbers = std::map<size_t, double>;

// The length of a number that is too large for a double, which Python takes for infinity; 0: it is
// none of those.
size_t LengthOfOverflow(std::string_view text, double& number) {
  const size_t length = std::min(text.find_first_not_of("+-.0123456789eE"), text.size());
  const std::string_view digits = text.substr(0, length);
  // Without an exponent it takes more than 300 digits.
  if (length == 0 || (digits.find_first_of("eE") == digits.npos && length < 300)) return 0;
  number = std::strtod(std::string(digits).c_str(), nullptr);
  return std::isinf(number) ? length : 0;
}

// Puts a 0 and spaces in their places, so that what follows keeps its offset.
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
  DomBuilder(const JsonLimits& limits, PythonNumbers python_numbers)
      : JsonSax(limits.max_depth),
        python_numbers_(std::move(python_numbers)),
        values_left_(limits.max_values) {}

  Json TakeRoot() { return std::move(root_); }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override {
    // Behind the 0 in its place one more byte was read.
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
      // Behind the back of ordered_map, whose own insertion searches all keys each time.
      Members(frame).emplace_back(std::move(frame.key), std::move(value));
    }
  }

  static Json::object_t::Container& Members(Frame& frame) {
    return frame.container.get_ref<Json::object_t&>();
  }

  // By sorting when the object is complete: no number of keys and no choice of them (as against a
  // hash table) makes it slow.
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
  size_t values_left_;
};

}  // namespace

Result<Json> ParseJsonStrict(std::string_view text, std::string_view where,
                             const JsonLimits& limits) {
  std::string plain;
  PythonNumbers python_numbers;
  if (limits.python_numbers) {
    plain = text;
    python_numbers = ReplacePythonNumbers(plain);
    text = plain;
  }
  DomBuilder builder(limits, std::move(python_numbers));
  Status status = builder.Run(text, where);
  if (!status.ok()) return status;
  return builder.TakeRoot();
}

}  // namespace prepack
