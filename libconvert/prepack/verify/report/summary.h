#pragma once

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

// Is a report worse than an earlier one? Bars say what is bad for any model; an earlier report says
// what this model had.
//
// Compared are, by module: the state of each level; the kernel, end-to-end and worst-channel SQNR
// by input (of the same name and number of rows); the agreement with the same second
// implementation; the weight and output SQNR. A regression is
//   - a figure that fell by more than the tolerance, or proves nothing any more; no error at all
//     (infinite) is above every number,
//   - a figure, a level or a module that was there and is not now, unless the module is not in the
//     sample,
//   - a level that passed, of the folder or of a module, and does not now.
// Modules that are new, or now have another layout, shape, target or implementation of the product,
// are noted. Figures for other activations (bf16 then, int8 now) say nothing about each other: that
// is noted, too. Activations that the machine only multiplied in f32, "f32 (bf16 values)", are the
// same as bf16.
//
// When no figure was compared and nothing failed, the comparison did not run.

inline constexpr double kDefaultToleranceDb = 0.5;

// Fills `now.regression`, as asked for. `tolerance_db` ≥ 0.
void CompareWithEarlier(const VerifyReport& earlier, double tolerance_db, VerifyReport& now);

}  // namespace prepack
