#ifndef PREPACK_VERIFY_REPORT_JSON_H_
#define PREPACK_VERIFY_REPORT_JSON_H_

// A verify report as JSON: what --json prints, schemas/verify.schema.json describes, and --against
// reads back (report_reader.h).

#include <string_view>

#include "container/json.h"
#include "verify/report.h"

namespace prepack {

inline constexpr std::string_view kVerifyReportKind = "prepack-verify";
// 2: levels have notes, figures stand by input, regression and quality are there.
inline constexpr uint64_t kVerifyReportVersion = 2;

// JSON has no infinity and no NaN, and null says "not measured": so a figure that is no number is
// one of these words.
inline constexpr std::string_view kInfinite = "infinite";  // dB: no error at all
inline constexpr std::string_view kMinusInfinite = "-infinite";
inline constexpr std::string_view kNothingToCompare = "nothing to compare";  // NaN

Json VerifyReportJson(const VerifyReport& report);

}  // namespace prepack

#endif  // PREPACK_VERIFY_REPORT_JSON_H_
