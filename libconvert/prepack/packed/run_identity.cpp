// What makes two runs the same conversion, and which tensors each part reads as a witness for the
// others (docs/scale.md, "One source").

#include "prepack/packed/run_identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "prepack/base/checked.h"
#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/container/json_fields.h"
#include "prepack/io/output_folder.h"

namespace prepack {
std::string Part::Text() const {
  return fmt::format("{}/{}", index, count);
}

bool Witnesses(const Part& part, uint32_t share) {
  uint32_t columns = 1;
  while (uint64_t{columns} * columns < part.count) ++columns;
  const uint32_t mine = part.index - 1;
  const uint32_t other = share - 1;
  return mine / columns == other / columns || mine % columns == other % columns;
}

Result<Part> ParsePart(std::string_view text) {
  const size_t slash = std::min(text.find('/'), text.size());
  const std::optional<uint64_t> index = ParseUint(text.substr(0, slash));
  const std::optional<uint64_t> count = ParseUint(text.substr(std::min(slash + 1, text.size())));
  if (index && count && *index >= 1 && *index <= *count && *count <= kMaxParts) {
    return Part{.index = static_cast<uint32_t>(*index), .count = static_cast<uint32_t>(*count)};
  }
  return Usage("--part", "not a part")
      .Found(text)
      .Expected(fmt::format("I/N with 1 <= I <= N <= {}, such as 3/8", kMaxParts));
}

std::filesystem::path PartFolder(const std::filesystem::path& output, const Part& part) {
  std::filesystem::path folder = WithoutTrailingSlashes(output);
  folder += fmt::format(".part-{:05}-of-{:05}", part.index, part.count);
  return folder;
}

uint32_t PartOf(uint64_t start, uint64_t bytes, uint64_t total, uint32_t count) {
  const uint64_t share = std::max<uint64_t>(1, CeilDiv(total, count));
  return 1 + static_cast<uint32_t>(std::min<uint64_t>((start + bytes / 2) / share, count - 1));
}

namespace {

struct Field {
  std::string_view name;  // in JSON
  std::string_view what;  // for people
  std::string RunIdentity::*value;
};

constexpr std::string_view kOtherSource = "another source, or a source that has changed";

constexpr std::array kFields = {
    Field{"prepack", "another version of prepack", &RunIdentity::tool},
    Field{"source", kOtherSource, &RunIdentity::source},
    Field{"options", "other options", &RunIdentity::options},
    Field{"plan", "a plan that packs other bytes", &RunIdentity::plan},
};

}  // namespace

Status CheckSameRun(const RunIdentity& found, const RunIdentity& expected, std::string_view where) {
  for (const Field& field : kFields) {
    if (found.*field.value == expected.*field.value) continue;
    return Usage(where, fmt::format("it comes from {}", field.what))
        .Found(found.*field.value)
        .Expected(expected.*field.value);
  }
  return {};
}

Status AnotherSource(std::string_view where, std::string_view found, std::string_view expected) {
  return Usage(where, fmt::format("it comes from {}", kOtherSource))
      .Found(found)
      .Expected(expected);
}

Json IdentityJson(const RunIdentity& identity) {
  Json json = Json::object();
  for (const Field& field : kFields) json[std::string(field.name)] = identity.*field.value;
  return json;
}

Result<RunIdentity> ReadIdentity(const Json& json, std::string_view where) {
  Status status;
  JsonFields fields(json, std::string(where), status);
  RunIdentity identity;
  for (const Field& field : kFields) identity.*field.value = fields.Text(field.name);
  PREPACK_TRY(std::move(status));
  return identity;
}

}  // namespace prepack
