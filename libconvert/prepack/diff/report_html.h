#ifndef PREPACK_DIFF_REPORT_HTML_H_
#define PREPACK_DIFF_REPORT_HTML_H_

// What the terminal and HTML say about a report, as plain text, so that they cannot disagree. Names
// in it come from files: the code that prints it must escape it.

#include <optional>
#include <string>

#include "prepack/diff/diff.h"

namespace prepack {

// "5 identical, 2 different"; "none".
std::string ModuleVerdicts(const DiffReport& report);
std::string TensorVerdicts(const DiffReport& report);

// "models/awq (awq)", "models/float (not quantized)"
std::string CheckpointText(const std::string& path, const std::string& format);
// "w4a16 group 128 symmetric [4096, 14336]"; "-" for a side that lacks it.
std::string SideText(const std::optional<DiffSide>& side);
// "0", "0.0123"
std::string DifferenceText(double difference);
// "38.1"; "-" without noise, or without signal.
std::string SqnrText(const WeightDifferences& differences);

// The report as one self-contained page (report/page.h): verdicts, the SQNR of every module of B
// against A, and all modules and tensors.
std::string DiffHtml(const DiffReport& report);

}  // namespace prepack

#endif  // PREPACK_DIFF_REPORT_HTML_H_
