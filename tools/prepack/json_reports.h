#pragma once

// The --json form of every result but that of verify, which the library reads back
// (verify/report/json.h). Each document names its kind and version, and has a schema of the same
// name in schemas/.

#include <optional>
#include <string_view>

#include "prepack/check/check.h"
#include "prepack/container/json.h"
#include "prepack/container/json_writer.h"
#include "prepack/convert/convert.h"
#include "prepack/convert/merge.h"
#include "prepack/convert/plan.h"
#include "prepack/diff/diff.h"
#include "prepack/inspect/inspect.h"
#include "prepack/verify/report/report.h"

namespace prepack::cli {

// The head of a document.
Json JsonDocument(std::string_view kind);
// Null in place of what JSON has no number for: infinity, NaN, and none at all.
Json JsonNumber(const std::optional<double>& value);

Json FindingsJson(const std::vector<Finding>& findings);

// The verdict of convert --verify; null: it was not verified.
Json VerificationJson(const VerifyReport* report);
Json ConvertJson(const ConvertReport& report, const std::string& source,
                 const VerifyReport* verified);
Json MergeJson(const MergeReport& report, const std::string& output);
// Those that have an entry for every module or tensor are written piece by piece.
void WritePlanJson(const Plan& plan, const QuantizedModel& model, const std::string& source,
                   JsonWriter& json);
// `summary` is of the folder, `statistics` of the one module that is left in the report; null: not
// asked for.
void WriteInspectJson(const InspectReport& report, const Json& summary, const Json& statistics,
                      JsonWriter& json);
// `strict` decides the exit code that the document states.
Json CheckJson(const CheckReport& report, bool strict);
Json DiffJson(const DiffReport& report);
Json TargetsJson();

}  // namespace prepack::cli
