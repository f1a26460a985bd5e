#include "container/json_sax.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace prepack {
namespace {

// Walks over the text and leaves its position where the handler can see it: nlohmann gives the
// offset only with its own errors.
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

// "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error …" without what
// comes before the error proper: we give the byte instead.
std::string_view Reason(std::string_view message) {
  for (const std::string_view prefix : {"] ", "parse error", ": "}) {
    const size_t at = message.find(prefix);
    // Only the start of the message: the rest may quote the file.
    if (at < 100) message.remove_prefix(at + prefix.size());
  }
  return message;
}

}  // namespace

Status JsonSax::Run(std::string_view text, std::string_view where) {
  where_ = where;
  begin_ = text.data();
  position_ = begin_;
  // Both would be passed over: nlohmann takes NUL for the end of the text, and skips a byte order
  // mark (which JSON forbids, and other loaders refuse).
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos)
    return Malformed(fmt::format("{}: byte {}", where, nul), "NUL in JSON text");
  if (text.starts_with("\xEF\xBB\xBF"))
    return Malformed(fmt::format("{}: byte 0", where), "byte order mark in front of JSON text");

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

}  // namespace prepack
