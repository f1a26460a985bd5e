// The protocol of prepack_vllm.measure, with a script that stands in for it.

#include <filesystem>
#include <fstream>
#include <string>

#include "catch.h"
#include "prepack/base/progress.h"
#include "status_matchers.h"
#include "tune_example.h"

namespace prepack::testing {
namespace {

// A program that stands in for Python: answers each question by the lines of a shell `case`.
class StandIn {
 public:
  explicit StandIn(const std::string& cases) {
    std::ofstream file(path());
    file << "#!/bin/sh\necho \"$@\" >" << (folder_ / "arguments").string()
         << "\nwhile read -r question; do\n  echo \"$question\" >>"
         << (folder_ / "questions").string() << "\n  case $question in\n"
         << cases << "  esac\ndone\n";
    file.close();
    std::filesystem::permissions(path(), std::filesystem::perms::owner_all);
  }
  std::filesystem::path path() const { return folder_ / "python3"; }
  std::string Text(const char* name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  TempFolder folder_;
};

constexpr char kHello[] = R"(    *hello*) echo '{"ok": true, "name": "vllm 0.32.0"}' ;;
)";
constexpr char kTimes[] =
    R"(    *prepare*) echo '{"ok": true, "kernel": 3, "implementation": "_C::op"}' ;;
    *time*) echo '{"ok": true, "seconds": 0.25}' ;;
    *forget*) echo '{"ok": true}' ;;
)";

Result<TuneReport> TuneVllmWith(KernelRuntime& runtime) {
  TuneOptions options = TuneFixture("ct-w4a16-g128-sym");
  options.targets = {"vllm-cpu"};
  options.batches = {1};
  options.seconds = 0.01;
  TuneMachine machine;
  machine.runtimes = {{.target = "vllm-cpu", .runtime = &runtime}};
  machine.features = EveryFeature();
  machine.cpus = {0};
  machine.bandwidth = 1e10;
  Progress progress;
  return TuneOn(machine, options, progress);
}

TEST_CASE("kernels of a child are measured like those of this process") {
  const StandIn python(std::string(kHello) + kTimes);
  const auto runtime = Value(StartPythonRuntime(python.path(), 2));
  CHECK(runtime->name() == "vllm 0.32.0");
  const TuneReport report = Value(TuneVllmWith(*runtime));
  REQUIRE(report.choice.has_value());
  const TuneCandidate& candidate = report.kinds[0].candidates[0];
  CHECK(candidate.layouts == std::vector<std::string>{"vllm-cpu/wna16"});
  CHECK(candidate.implementation == "_C::op");
  CHECK(candidate.steps[0].timing->seconds == 0.25);
  CHECK(python.Text("arguments") == "-m prepack_vllm.measure\n");
  const std::string questions = python.Text("questions");
  CHECK(questions.starts_with(R"({"do":"hello","protocol":2,"threads":2})"));
  CHECK(
      questions.find(R"("module":"model.layers.0.mlp.down_proj","rows":1,"cold_bytes":67108864)") !=
      std::string::npos);
  CHECK(questions.find(R"({"do":"time","kernel":3})") != std::string::npos);
  CHECK(questions.ends_with("{\"do\":\"forget\",\"kernel\":3}\n"));
}

TEST_CASE("what the op says of itself is the reason") {
  const StandIn python(std::string(kHello) +
                       R"(    *prepare*) echo '{"ok": false, "message": "RuntimeError: no AMX"}' ;;
)");
  const auto runtime = Value(StartPythonRuntime(python.path(), 1));
  const TuneReport report = Value(TuneVllmWith(*runtime));
  CHECK_FALSE(report.choice.has_value());
  CHECK(report.kinds[0].candidates[0].steps[0].why_not == "RuntimeError: no AMX");
}

TEST_CASE("a child that cannot begin is no runtime") {
  const StandIn refuses(R"(    *) echo '{"ok": false, "message": "needs vLLM"}' ;;
)");
  CheckError(StartPythonRuntime(refuses.path(), 1).status(), ErrorKind::kUnavailable, "needs vLLM");
  const StandIn ends("    *) echo 'No module named prepack_vllm' >&2; exit 1 ;;\n");
  CheckError(StartPythonRuntime(ends.path(), 1).status(), ErrorKind::kUnavailable,
             "found No module named prepack_vllm");
  CheckError(StartPythonRuntime("/nowhere/python3", 1).status(), ErrorKind::kUnavailable,
             "cannot be started");
}

TEST_CASE("answers of another protocol are refused, whatever they are") {
  for (const char* answer : {R"({})", R"({"ok": 1})", R"({"ok": true})", R"({"ok": false})",
                             R"({"ok": true, "name": 1})", R"({"ok": false, "message": 3})"}) {
    CAPTURE(answer);
    const StandIn python(std::string("    *) echo '") + answer + "' ;;\n");
    CheckError(StartPythonRuntime(python.path(), 1).status(), ErrorKind::kMalformed,
               "its answer is not that of prepack_vllm.measure");
  }
  for (const char* cases :
       {R"(    *) echo '{"ok": true, "kernel": -1, "implementation": "x"}' ;;
)",
        R"(    *) echo '{"ok": true, "kernel": 1}' ;;
)",
        R"(    *prepare*) echo '{"ok": true, "kernel": 1, "implementation": "x"}' ;;
    *) echo '{"ok": true, "seconds": 0}' ;;
)",
        R"(    *prepare*) echo '{"ok": true, "kernel": 1, "implementation": "x"}' ;;
    *) echo '{"ok": true, "seconds": "fast"}' ;;
)"}) {
    CAPTURE(cases);
    const StandIn python(std::string(kHello) + cases);
    const auto runtime = Value(StartPythonRuntime(python.path(), 1));
    CheckError(TuneVllmWith(*runtime).status(), ErrorKind::kMalformed, "its answer is not that of");
  }
}

}  // namespace
}  // namespace prepack::testing
