// Errors and notes on stderr, for people or for programs.

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "command.h"
#include "terminal.h"

namespace prepack::cli {
namespace {

MessageFormat message_format = MessageFormat::kText;

void PrintLabelled(Tone tone, std::string_view label, std::string_view text) {
  const std::string line =
      fmt::format("{} {}\n", Paint(tone, fmt::format("{}:", label), Stream::kStderr), text);
  const std::string shown = DisplayOf(Stream::kStderr).unicode ? line : ToAscii(line);
  // Where stderr cannot be written, nobody is left to tell: the exit code says what happened.
  std::fwrite(shown.data(), 1, shown.size(), stderr);
}

void PrintDocument(const Json& document) {
  const std::string line = MessageLine(document);
  std::fwrite(line.data(), 1, line.size(), stderr);
}

// For scripts; never rename them.
const char* KindName(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kCheckFailed:
      return "check-failed";
    case ErrorKind::kUsage:
      return "usage";
    case ErrorKind::kMalformed:
      return "malformed";
    case ErrorKind::kSystem:
      return "system";
    case ErrorKind::kUnsupported:
      return "unsupported";
    case ErrorKind::kUnavailable:
      return "unavailable";
    case ErrorKind::kInterrupted:
      return "interrupted";
  }
  return "system";
}

void PutUnlessEmpty(Json& document, const char* key, const std::string& text) {
  if (!text.empty()) document[key] = text;
}

Json ErrorDocument(const Status& status) {
  Json document = {{"kind", "prepack-error"},          {"version", 1},
                   {"error", KindName(status.kind())}, {"exit_code", ExitCode(status)},
                   {"where", status.where()},          {"what", status.what()},
                   {"text", status.ToString()}};
  PutUnlessEmpty(document, "found", status.found());
  PutUnlessEmpty(document, "expected", status.expected());
  PutUnlessEmpty(document, "hint", status.hint());
  PutUnlessEmpty(document, "id", status.id());
  return document;
}

}  // namespace

MessageFormat MessageFormatOf(std::span<char* const> arguments) {
  constexpr std::string_view kOption = "--messages";
  bool is_value = false;
  MessageFormat format = MessageFormat::kText;
  for (const std::string_view argument : arguments) {
    if (argument == "--") break;
    if (is_value || argument.starts_with("--messages=")) {
      const std::string_view value = is_value ? argument : argument.substr(kOption.size() + 1);
      format = value == "json" ? MessageFormat::kJson : MessageFormat::kText;
    }
    is_value = argument == kOption;
  }
  return format;
}

void SetMessageFormat(MessageFormat format) {
  message_format = format;
}

std::string MessageLine(const Json& document) {
  return PrintableJson(document.dump(-1, ' ', false, Json::error_handler_t::replace)) + "\n";
}

void PrintSystemError(std::string_view text) {
  if (message_format == MessageFormat::kText) return PrintLabelled(Tone::kBad, "error", text);
  PrintDocument(ErrorDocument(SystemError("prepack", text, 0)));
}

void PrintFinding(const Finding& finding, ExitCodeValue code) {
  const std::string text =
      fmt::format("{}: {}", Printable(finding.where), Printable(finding.message, 1000));
  if (message_format == MessageFormat::kText) return PrintLabelled(Tone::kBad, "error", text);
  Json document = ErrorDocument(
      Status(ErrorKind{code}, finding.where, finding.message).Hint(finding.hint).Id(finding.id));
  document["text"] = text;
  PrintDocument(document);
}

void PrintNote(std::string_view text) {
  if (message_format == MessageFormat::kText) return PrintLabelled(Tone::kUnsure, "note", text);
  PrintDocument({{"kind", "prepack-note"}, {"version", 1}, {"text", text}});
}

ExitCodeValue Fail(const Status& status) {
  if (message_format == MessageFormat::kText) {
    PrintLabelled(Tone::kBad, "error", status.ToString());
  } else {
    PrintDocument(ErrorDocument(status));
  }
  return ExitCode(status);
}

}  // namespace prepack::cli
