// Indentation and commas of Json::dump(2), written by hand so that a document can be streamed.

#include "prepack/container/json_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

namespace prepack {
namespace {

constexpr size_t kBufferBytes = 64 << 10;
constexpr size_t kIndent = 2;

bool IsPlain(char c) {
  return c >= 0x20 && c < 0x7F && c != '"' && c != '\\';
}

std::string_view PythonName(double number) {
  if (std::isnan(number)) return "NaN";
  return number > 0 ? "Infinity" : "-Infinity";
}

}  // namespace

void JsonWriter::Key(std::string_view name) {
  BeginElement();
  AppendQuoted(name);
  buffer_ += OnLine() ? ":" : ": ";
  after_key_ = true;
}

void JsonWriter::Text(std::string_view text) {
  BeginValue();
  AppendQuoted(text);
}

void JsonWriter::Number(uint64_t number) {
  BeginValue();
  fmt::format_to(std::back_inserter(buffer_), "{}", number);
}

void JsonWriter::Value(const Json& value) {
  if (value.is_object()) {
    BeginObject();
    for (const auto& [name, member] : value.items()) Member(name, member);
    EndObject();
  } else if (value.is_array()) {
    BeginArray();
    for (const Json& element : value) Value(element);
    EndArray();
  } else if (value.is_string()) {
    Text(value.get_ref<const std::string&>());
  } else {
    BeginValue();
    const bool python = not_finite_ == NotFinite::kPython && value.is_number_float();
    const double number = python ? value.get<double>() : 0;
    buffer_ += std::isfinite(number) ? value.dump() : std::string(PythonName(number));
  }
}

void JsonWriter::MemberText(std::string_view name, std::string_view text) {
  Key(name);
  Text(text);
}

void JsonWriter::MemberNumber(std::string_view name, uint64_t number) {
  Key(name);
  Number(number);
}

void JsonWriter::Member(std::string_view name, const Json& value) {
  Key(name);
  Value(value);
}

void JsonWriter::Flush() {
  sink_(buffer_);
  buffer_.clear();
}

void JsonWriter::Begin(char bracket) {
  BeginValue();
  buffer_ += bracket;
  elements_.push_back(0);
}

void JsonWriter::End(char bracket) {
  const bool breaks = elements_.back() != 0 && !OnLine();
  elements_.pop_back();
  if (breaks) BreakLine();
  buffer_ += bracket;
}

void JsonWriter::BeginValue() {
  if (!after_key_) BeginElement();
  after_key_ = false;
}

void JsonWriter::BeginElement() {
  if (elements_.empty()) return;
  if (elements_.back()++ != 0) buffer_ += ',';
  BreakLine();
}

void JsonWriter::BreakLine() {
  if (buffer_.size() >= kBufferBytes) Flush();
  if (OnLine()) return;
  buffer_ += '\n';
  buffer_.append(kIndent * elements_.size(), ' ');
}

void JsonWriter::AppendQuoted(std::string_view text) {
  if (!std::ranges::all_of(text, IsPlain)) {
    buffer_ += Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
    return;
  }
  buffer_ += '"';
  buffer_ += text;
  buffer_ += '"';
}

Json JsonAsWritten(Json value) {
  if (value.is_structured()) {
    for (Json& element : value) element = JsonAsWritten(std::move(element));
  } else if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    value = nullptr;
  }
  return value;
}

std::string PythonJsonText(const Json& value) {
  std::string text;
  JsonWriter json([&text](std::string_view piece) { text += piece; },
                  JsonWriter::NotFinite::kPython);
  json.Value(value);
  json.Flush();
  return text + "\n";
}

}  // namespace prepack
