#ifndef PREPACK_VERIFY_REPORT_SUMMARY_H_
#define PREPACK_VERIFY_REPORT_SUMMARY_H_

// What the terminal, HTML, Markdown and JUnit say of a report, as plain text: so that they cannot
// disagree. Names in it come from files: the code that prints it escapes it.

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/verify/report/report.h"

namespace prepack {

// "55.6", "inf" for no error at all, "undefined" for what proves nothing, "-" for not measured.
std::string DecibelText(const std::optional<double>& decibel);

// The input that the kernel did worst with, or null.
const InputFigures* LowestKernel(const GemmFigures& gemm);
// Gaussian activations say what a user gets; others are made to find mistakes. Of several, those
// with the most rows: their figure is the most certain. Null without any activations.
const InputFigures* Gaussian(const GemmFigures& gemm);

// The table of modules.
struct ReportColumn {
  std::string title;
  bool number = false;
};
// Have some modules figures of quality? Only then are there columns for them.
bool HasQuality(const VerifyReport& report);
std::vector<ReportColumn> ModuleColumns(bool with_quality);
// One cell per column.
std::vector<std::string> ModuleCells(const ModuleVerification& module, bool with_quality);

// All that was measured of a module on one level, a line each.
std::vector<std::string> FigureLines(const ModuleVerification& module, Level level);

// A level as it is shown; regression is one of them when there was an earlier report, quality when
// it was asked for or ran.
struct ShownLevel {
  std::string_view name;
  const LevelResult* result = nullptr;
  std::string sentence;        // what was looked at, or why it was not
  std::optional<Level> level;  // none: regression
};
std::vector<ShownLevel> ShownLevels(const VerifyReport& report);

// "looked at 12 of 120 modules (--sample 0.1, seed 0)"; empty without a sample.
std::string SampleSentence(const VerifyReport& report);
// "passed", "failed: integrity, gemm", "not run: gemm"
std::string VerdictSentence(const VerifyReport& report);

// How far the module's kernel is above its bar, in dB, with the worst of its inputs; a figure that
// proves nothing is worst of all. None: it was not multiplied.
std::optional<double> KernelMargin(const ModuleVerification& module);
// The modules with the smallest margins, at most `count`, smallest first.
std::vector<const ModuleVerification*> WorstModules(const VerifyReport& report, size_t count);
// Names of modules that failed a level or have a problem; the views are into the report.
std::set<std::string_view> ModulesWithProblems(const VerifyReport& report);

// The list with what is said of several modules in the same words said once: "module a and 6 more".
std::vector<Problem> Folded(const std::vector<Problem>& problems);

// "module a.b: message", without saying the place twice.
std::string ProblemText(const Problem& problem);

}  // namespace prepack

#endif  // PREPACK_VERIFY_REPORT_SUMMARY_H_
