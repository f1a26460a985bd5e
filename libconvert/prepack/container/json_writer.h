#pragma once

// Writes a JSON document piece by piece, with exactly the bytes of Json::dump(2): a document with
// an entry for every module or tensor needs neither a DOM nor all of its text in memory. Such
// entries are best written on a line each (JsonWriter::Line), in the bytes of Json::dump(): half of
// a long document would be the spaces of its indentation. Bytes that are not UTF-8 become
// replacement characters.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/container/json.h"

namespace prepack {

class JsonWriter {
 public:
  // Called with the text piece by piece.
  using Sink = std::function<void(std::string_view)>;

  // How numbers are written that JSON does not have.
  enum class NotFinite : uint8_t {
    kNull,    // as null
    kPython,  // NaN, Infinity, -Infinity: what Python writes and reads
  };

  explicit JsonWriter(Sink sink, NotFinite not_finite = NotFinite::kNull)
      : sink_(std::move(sink)), not_finite_(not_finite) {}

  void BeginObject() { Begin('{'); }
  void EndObject() { End('}'); }
  void BeginArray() { Begin('['); }
  void EndArray() { End(']'); }
  // In an object, in front of every value.
  void Key(std::string_view name);

  void Text(std::string_view text);
  void Number(uint64_t number);
  // Any value, with all that is in it.
  void Value(const Json& value);

  void MemberText(std::string_view name, std::string_view text);
  void MemberNumber(std::string_view name, uint64_t number);
  void Member(std::string_view name, const Json& value);

  // While one lives, each value begins on a line of its own and has no line breaks and no spaces in
  // it. None is made while another lives.
  class Line {
   public:
    explicit Line(JsonWriter& json) : json_(json) { json_.line_depth_ = json_.elements_.size(); }
    ~Line() { json_.line_depth_ = kNoLine; }
    Line(const Line&) = delete;
    Line& operator=(const Line&) = delete;

   private:
    JsonWriter& json_;
  };

  // Hands on all that was written so far.
  void Flush();

 private:
  static constexpr size_t kNoLine = ~size_t{0};

  bool OnLine() const { return elements_.size() > line_depth_; }
  void Begin(char bracket);
  void End(char bracket);
  // To be called before every value, and before every key.
  void BeginValue();
  void BeginElement();
  void BreakLine();
  void AppendQuoted(std::string_view text);

  Sink sink_;
  NotFinite not_finite_;
  std::string buffer_;
  std::vector<size_t> elements_;  // in each open container
  bool after_key_ = false;
  size_t line_depth_ = kNoLine;  // what is in more containers than this stays on the line
};

// What a reader of NotFinite::kNull gets: numbers that JSON does not have are null.
Json JsonAsWritten(Json value);

// A whole document as Python would have it (NotFinite::kPython), with a line break at its end: for
// what comes from config.json.
std::string PythonJsonText(const Json& value);

}  // namespace prepack
