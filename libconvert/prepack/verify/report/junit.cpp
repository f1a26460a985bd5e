#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "prepack/report/junit_xml.h"
#include "prepack/verify/report/summary.h"
#include "prepack/verify/report/writers.h"

namespace prepack {
namespace {

using ProblemsByModule = std::unordered_map<std::string_view, std::vector<const Problem*>>;

ProblemsByModule ByModule(const std::vector<Problem>& problems) {
  ProblemsByModule by_module;
  for (const Problem& problem : problems) by_module[problem.module].push_back(&problem);
  return by_module;
}

std::vector<const Problem*> Pointers(const std::vector<Problem>& problems) {
  std::vector<const Problem*> pointers;
  pointers.reserve(problems.size());
  for (const Problem& problem : problems) pointers.push_back(&problem);
  return pointers;
}

const std::vector<const Problem*>& Of(const ProblemsByModule& problems, std::string_view module) {
  static const std::vector<const Problem*> kNone;
  const auto it = problems.find(module);
  return it == problems.end() ? kNone : it->second;
}

std::vector<std::string> Lines(const std::vector<const Problem*>& problems) {
  std::vector<std::string> lines;
  lines.reserve(problems.size());
  for (const Problem* problem : problems) lines.push_back(ProblemText(*problem));
  return lines;
}

void Append(std::vector<std::string> lines, std::vector<std::string>& all) {
  std::ranges::move(lines, std::back_inserter(all));
}

// A level that becomes a suite.
class SuiteBuilder {
 public:
  SuiteBuilder(const VerifyReport& report, const ShownLevel& level)
      : report_(report),
        level_(level),
        problems_(ByModule(level.result->problems)),
        notes_(ByModule(level.result->notes)) {
    suite_.name = fmt::format("prepack verify {}: {}", report.folder, level.name);
    for (const ModuleVerification& module : report.modules) names_.insert(module.module);
  }

  JUnitSuite Build() && {
    for (const ModuleVerification& module : report_.modules) AddModule(module);
    AddFolder();
    return std::move(suite_);
  }

 private:
  // Regression has no state by module; its findings about a module are problems.
  LevelState StateOf(const ModuleVerification& module) const {
    if (level_.level) return module.state(*level_.level);
    if (!Of(problems_, module.module).empty()) return LevelState::kFailed;
    return level_.result->state == LevelState::kNotRun || !module.looked_at ? LevelState::kNotRun
                                                                            : LevelState::kPassed;
  }

  std::string WhyNotRun(const ModuleVerification& module) const {
    const auto& problems = Of(problems_, module.module);
    if (!problems.empty()) return problems.front()->message;
    if (!module.looked_at) return "not in the sample";
    return level_.result->reason.empty() ? "not run" : level_.result->reason;
  }

  JUnitCase NewCase(std::string name) const {
    JUnitCase test;
    test.class_name = fmt::format("prepack.verify.{}", level_.name);
    test.name = std::move(name);
    return test;
  }

  JUnitFailure Failure(const std::vector<const Problem*>& problems) const {
    return {.type = std::string(level_.name),
            .message = problems.empty() ? "failed" : problems.front()->message,
            .lines = Lines(problems)};
  }

  void AddModule(const ModuleVerification& module) {
    JUnitCase test = NewCase(module.module);
    const auto& problems = Of(problems_, module.module);
    switch (StateOf(module)) {
      case LevelState::kFailed:
        test.failure = Failure(problems);
        any_failed_ = true;
        break;
      case LevelState::kNotRun:
        test.skipped = WhyNotRun(module);
        break;
      case LevelState::kPassed:
        Append(Lines(problems), test.output);
        break;
    }
    Append(Lines(Of(notes_, module.module)), test.output);
    if (level_.level) Append(FigureLines(module, *level_.level), test.output);
    suite_.cases.push_back(std::move(test));
  }

  // Problems of modules that the folder lacks, or that name none.
  std::vector<const Problem*> OfNoModule() const {
    std::vector<const Problem*> rest;
    for (const Problem& problem : level_.result->problems) {
      if (!names_.contains(problem.module)) rest.push_back(&problem);
    }
    return rest;
  }

  void AddFolder() {
    JUnitCase test = NewCase(NameOfWhole("folder", suite_.cases));
    const std::vector<const Problem*> problems = OfNoModule();
    const LevelState state = level_.result->state;
    if (state == LevelState::kFailed && !problems.empty()) {
      test.failure = Failure(problems);
    } else if (state == LevelState::kFailed && !any_failed_) {  // the failure must show somewhere
      test.failure = Failure(Pointers(level_.result->problems));
    } else if (state == LevelState::kNotRun) {
      test.skipped = level_.result->reason.empty() ? "not run" : level_.result->reason;
    }
    if (!test.failure) Append(Lines(problems), test.output);
    if (state != LevelState::kNotRun) test.output.push_back(level_.sentence);
    Append(Lines(Of(notes_, "")), test.output);
    if (const std::string sample = SampleSentence(report_); !sample.empty()) {
      test.output.push_back(sample);
    }
    suite_.cases.push_back(std::move(test));
  }

  const VerifyReport& report_;
  const ShownLevel& level_;
  std::unordered_set<std::string_view> names_;  // of all modules
  ProblemsByModule problems_;
  ProblemsByModule notes_;
  JUnitSuite suite_;
  bool any_failed_ = false;
};

}  // namespace

std::string VerifyJUnit(const VerifyReport& report) {
  std::vector<JUnitSuite> suites;
  for (const ShownLevel& level : ShownLevels(report)) {
    suites.push_back(SuiteBuilder(report, level).Build());
  }
  return JUnitXml(suites);
}

}  // namespace prepack
