#pragma once

// Whole programs, as a user runs them, and what they cost.

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace prepack::bench {

// Runs a benchmark to its end; a failure, Ctrl-C or a closed pipe (`| head`) leaves no scratch
// folder behind either, and says why. The exit code of the program.
int RunBenchmark(const std::function<void()>& benchmark);

// Ends the benchmark with an error: throws.
[[noreturn]] void Fail(const std::string& message);

// A program that was built with this one.
std::string ProgramBeside(const std::string& name);

// One run of a program.
struct Cost {
  double seconds = 0;
  double cpu_seconds = 0;   // of all its threads, in the program and in the kernel
  double user_seconds = 0;  // of that, in the program
  // The most that it had in memory, in MiB: with pages of files that it mapped, and without. The
  // latter is looked up every few milliseconds, and is less by what came and went between.
  double resident = 0;
  double anonymous = 0;
};

// Runs a program without its output; found along PATH. Its failure ends the benchmark, too.
//
// `resident` is never less than what this program has in memory, which Linux counts for its
// children: leave what needs much memory to programs of their own.
Cost Run(const std::vector<std::string>& command);
// The same, but prepack may say that it found something (1).
Cost RunWithFindings(const std::vector<std::string>& command);
// The same, but prepack may say that what it is asked for is not supported (5): nothing.
std::optional<Cost> RunIfSupported(const std::vector<std::string>& command);

// The median of times, and the most of memory. At least one.
Cost Summarize(const std::vector<Cost>& costs);

}  // namespace prepack::bench
