#ifndef PREPACK_VERIFY_REPORT_MARKDOWN_H_
#define PREPACK_VERIFY_REPORT_MARKDOWN_H_

// A verify report as GitHub-flavoured Markdown, for the summary of a CI job or a comment.

#include <string>

#include "verify/report.h"

namespace prepack {

// GitHub takes at most 1 MiB of summary per step, and refuses all of it when it is more.
inline constexpr size_t kMaxMarkdownBytes = 1 << 20;

// Verdict, levels, problems, the modules closest to their bar, and all modules folded away. Tables
// and lists end early, and say so, rather than exceed kMaxMarkdownBytes.
std::string VerifyMarkdown(const VerifyReport& report);

}  // namespace prepack

#endif  // PREPACK_VERIFY_REPORT_MARKDOWN_H_
