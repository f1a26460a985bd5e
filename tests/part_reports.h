#pragma once

// Reports of parts that are not what a part wrote.

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "catch.h"
#include "prepack/container/json.h"
#include "prepack/io/file.h"
#include "status_matchers.h"

namespace prepack::testing {

inline Json ReadJson(const std::filesystem::path& path) {
  return Json::parse(Value(ReadTextFile(path, 1 << 28)));
}

using ReportPaths = std::vector<std::filesystem::path>;
using MergeStatus = std::function<Status(const ReportPaths& reports)>;

// The merge with another text in the place of a report.
inline Status MergeWith(const MergeStatus& merge, const std::filesystem::path& report,
                        const ReportPaths& reports, const std::string& text) {
  const std::string before = Value(ReadTextFile(report, 1 << 28));
  std::filesystem::remove(report);
  RequireOk(WriteTextFile(report, text));
  Status status = merge(reports);
  std::filesystem::remove(report);
  RequireOk(WriteTextFile(report, before));
  return status;
}

// Each member of `value`, and of all in it, is left out, and then becomes a list of nothing: the
// merge must refuse both.
inline void CheckEachMember(Json& value, const std::function<Status()>& merge) {
  if (value.is_array()) {
    for (Json& element : value) CheckEachMember(element, merge);
  }
  if (!value.is_object()) return;
  std::vector<std::string> keys;
  for (const auto& [key, member] : value.items()) keys.push_back(key);
  for (const std::string& key : keys) {
    CAPTURE(key);
    const Json before = value;
    value.erase(key);
    CheckError(merge(), ErrorKind::kMalformed, "");
    value = before;
    value[key] = Json::array({nullptr});
    CheckError(merge(), ErrorKind::kMalformed, "");
    value = before;
    CheckEachMember(value[key], merge);
  }
}

// One thing of each kind that the reports have measured.
inline void CheckHostileReports(const ReportPaths& reports, const MergeStatus& merge) {
  std::vector<std::string> kinds;
  for (const std::filesystem::path& path : reports) {
    Json report = ReadJson(path);
    const auto again = [&] { return MergeWith(merge, path, reports, report.dump()); };
    for (auto& [key, value] : report["measured"].items()) {
      const std::string kind = key.substr(0, key.find(' '));
      if (std::ranges::count(kinds, kind) != 0) continue;
      kinds.push_back(kind);
      CAPTURE(key);
      CheckEachMember(value, again);
    }
  }
  REQUIRE(kinds.size() >= 3);
}

// Reports that are not those of all parts of this run.
inline void CheckWrongReports(const ReportPaths& reports, const MergeStatus& merge) {
  REQUIRE(reports.size() == 3);
  RequireOk(merge(reports));
  RequireOk(merge({reports[2], reports[0], reports[1]}));
  CheckError(merge({reports[0], reports[2]}), ErrorKind::kUsage,
             "there is no report of some parts (found none of 2/3)");
  CheckError(merge({reports[0], reports[0], reports[1], reports[2]}), ErrorKind::kUsage,
             "part 1/3 has two reports");
  CheckError(merge({reports[0], reports[1], "nowhere.json"}), ErrorKind::kSystem, "nowhere.json");
  Json report = ReadJson(reports[1]);
  const auto with = [&](const Json& changed) {
    return MergeWith(merge, reports[1], reports, changed.dump());
  };
  const auto changed = [&](std::string_view key, const Json& value) {
    Json other = report;
    other[std::string(key)] = value;
    return with(other);
  };
  RequireOk(with(report));
  CheckError(MergeWith(merge, reports[1], reports, "{"), ErrorKind::kMalformed, "byte");
  CheckError(with(Json::array()), ErrorKind::kMalformed, "not the report of a part");
  CheckError(changed("kind", "prepack-check"), ErrorKind::kMalformed, "not the report of a part");
  CheckError(changed("version", 2), ErrorKind::kUnsupported, "another format version");
  CheckError(changed("part", "2/4"), ErrorKind::kUsage, "another number of parts (found 2/4");
  CheckError(changed("part", "4/3"), ErrorKind::kMalformed, "is not a part");
  CheckError(changed("part", 2), ErrorKind::kMalformed, "\"part\" has the wrong type");
  CheckError(changed("identity", 2), ErrorKind::kMalformed, "\"identity\" has the wrong type");
  CheckError(changed("measured", 2), ErrorKind::kMalformed, "\"measured\" has the wrong type");
  CheckError(changed("measured", Json::object()), ErrorKind::kMalformed,
             "the report does not have this. Make the report of this part again");
  CheckError(changed("measured", ReadJson(reports[0])["measured"]), ErrorKind::kMalformed,
             "another part has measured this, too");
  for (const auto& [key, value] : report["identity"].items()) {
    CAPTURE(key);
    Json other = report;
    other["identity"][key] = "else";
    CheckError(with(other), ErrorKind::kUsage, "this report comes from");
    other["identity"].erase(key);
    CheckError(with(other), ErrorKind::kMalformed, "is missing");
  }
}

}  // namespace prepack::testing
