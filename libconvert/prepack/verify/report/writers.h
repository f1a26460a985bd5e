#pragma once

// A verify report as JSON: what --json prints, schemas/verify.schema.json describes, and --against
// reads back (verify/report/json.h).

#include <filesystem>
#include <string>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/container/json.h"
#include "prepack/verify/report/report.h"

namespace prepack {

inline constexpr std::string_view kVerifyReportKind = "prepack-verify";
// 2: levels have notes, figures stand by input, regression and quality are there.
inline constexpr uint64_t kVerifyReportVersion = 2;

// JSON has no infinity and no NaN, and null says "not measured": so a figure that is NaN is
// one of these words.
inline constexpr std::string_view kInfinite = "infinite";  // dB: no error at all
inline constexpr std::string_view kMinusInfinite = "-infinite";
inline constexpr std::string_view kNothingToCompare = "nothing to compare";  // NaN

Json VerifyReportJson(const VerifyReport& report);

// Reads a verify report back. The file may come from anywhere: every field is checked.

// A module takes 2 to 5 kB: enough for 60,000 of them.
inline constexpr uint64_t kMaxReportBytes = 1ULL << 28;

// kMalformed if it is not a report as in schemas/verify.schema.json, kUnsupported if it is one
// of another version.
Result<VerifyReport> ReadVerifyReport(const std::filesystem::path& path);
// The same for a text; `where` names it.
Result<VerifyReport> ParseVerifyReport(std::string_view text, std::string_view where);

// A verify report as one self-contained page: no script, nothing loaded from anywhere, light or
// dark as the reader's system is.

std::string VerifyHtml(const VerifyReport& report);

// A verify report as JUnit XML: a suite per level with a test case per module,
// `prepack.verify.LEVEL` / MODULE, and one named "folder" for what is not of one module. What did
// not run is skipped, with the reason, never passed; a level that failed has at least one case that
// failed.

std::string VerifyJUnit(const VerifyReport& report);

// A verify report as GitHub-flavoured Markdown, for the summary of a CI job or a comment.

// GitHub takes at most 1 MiB of summary per step, and refuses all of it when it is more.
inline constexpr size_t kMaxMarkdownBytes = 1 << 20;

// Verdict, levels, problems, the modules closest to their bar, and all modules folded away. Tables
// and lists end early, and say so, rather than exceed kMaxMarkdownBytes.
std::string VerifyMarkdown(const VerifyReport& report);

}  // namespace prepack
