#include "part_options.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "json_reports.h"
#include "prepack/io/file.h"
#include "prepack/measure/measurements.h"
#include "table.h"

namespace prepack::cli {

void PartFlags::AddTo(CLI::App& command, std::initializer_list<const char*> results) {
  CLI::Option* part_option =
      command
          .add_option("--part", part,
                      "Read only part I of N, on one of many machines, and write what was measured "
                      "to the file of --report; --merge gives the verdict")
          ->type_name("I/N");
  CLI::Option* report_option =
      command.add_option("--report", report, "Where --part writes its report")->type_name("FILE");
  command
      .add_option("--merge", merge,
                  "Read no weights: take what all parts have measured from the files of their "
                  "--report, or from the .json files of a folder, and give the verdict that "
                  "one machine would have given. Say all else as for the parts")
      ->type_name("REPORT...")
      ->excludes(part_option);
  part_option->needs(report_option);
  report_option->needs(part_option);
  for (const char* result : results) part_option->excludes(command.get_option(result));
}

Status PartFlags::AddPath(OutputPaths& paths) const {
  return report.empty() ? Status() : paths.Add("--report", report);
}

Result<std::vector<std::filesystem::path>> PartFlags::Reports() const {
  const std::vector<std::filesystem::path> places(merge.begin(), merge.end());
  PREPACK_TRY_ASSIGN(std::vector<std::filesystem::path> reports, PartReports(places));
  if (reports.empty()) {
    return Usage("--merge", "there is no report").Found(merge.front()).Expected("files in .json");
  }
  return reports;
}

ExitCodeValue FinishPart(std::string_view command, const PartFlags& flags, const Part& part,
                         const Result<PartReport>& report, const CommonOptions& common) {
  if (!report.ok()) return Fail(report.status());
  if (const Status written = WriteFileAtomically(flags.report, report->text); !written.ok()) {
    return Fail(written);
  }
  if (common.json) {
    Json json = JsonDocument("prepack-measured");
    json["command"] = command;
    json["part"] = part.Text();
    json["report"] = flags.report;
    json["measured"] = report->measured;
    PrintJson(json);
  } else if (!common.quiet) {
    Print(fmt::format("part {}: {} in {}\n", part.Text(), Plural(report->measured, "measurement"),
                      Printable(flags.report)));
  }
  return kExitDone;
}

}  // namespace prepack::cli
