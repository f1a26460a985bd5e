#ifndef PREPACK_VERIFY_REPORT_READER_H_
#define PREPACK_VERIFY_REPORT_READER_H_

// Reads a verify report back. The file may come from anywhere: every field is checked.

#include <filesystem>
#include <string_view>

#include "base/result.h"
#include "verify/report.h"

namespace prepack {

// A module takes 2 to 5 kB: enough for 60,000 of them.
inline constexpr uint64_t kMaxReportBytes = 1ULL << 28;

// kMalformed when it is no report as schemas/verify.schema.json says, kUnsupported when it is one
// of another version.
Result<VerifyReport> ReadVerifyReport(const std::filesystem::path& path);
// The same for a text; `where` names it.
Result<VerifyReport> ParseVerifyReport(std::string_view text, std::string_view where);

}  // namespace prepack

#endif  // PREPACK_VERIFY_REPORT_READER_H_
