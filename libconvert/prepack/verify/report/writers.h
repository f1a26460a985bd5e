#ifndef PREPACK_VERIFY_REPORT_WRITERS_H_
#define PREPACK_VERIFY_REPORT_WRITERS_H_

// A verify report as one self-contained page: no script, nothing loaded from anywhere, light or
// dark as the reader's system is.

#include <string>

#include "prepack/verify/report/report.h"

namespace prepack {

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

#endif  // PREPACK_VERIFY_REPORT_WRITERS_H_
