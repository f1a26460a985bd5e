#ifndef PREPACK_VERIFY_REPORT_H_
#define PREPACK_VERIFY_REPORT_H_

// What a verification found. A level that did not run is "not run", with the reason; it never
// counts as passed.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace prepack {

enum class LevelState : uint8_t { kPassed, kFailed, kNotRun };

std::string_view LevelStateName(LevelState state);  // "passed", "failed", "not run"

// One thing that is wrong, or that could not be checked.
struct Problem {
  std::string where;    // module, tensor or file
  std::string message;  // a sentence, with the numbers
};

struct LevelResult {
  LevelState state = LevelState::kNotRun;
  std::string reason;             // why it did not run
  std::vector<Problem> problems;  // what failed

  // Adds a problem and marks the level as failed.
  void Fail(std::string where, std::string message);
};

// The figures of one packed module. A figure is absent when its level did not run.
struct ModuleVerification {
  std::string module;
  std::string layout;
  uint64_t n = 0;
  uint64_t k = 0;
  std::optional<bool> exact;                   // codes, zero points and scales as in the source
  std::optional<double> max_scale_difference;  // |packed − stored| / |stored|, largest
  std::optional<double> kernel_sqnr_db;        // against what the kernel should compute
  std::optional<double> end_to_end_sqnr_db;    // against x · Wᵀ of the source, x unrounded
  std::string gemm_implementation;
  std::string gemm_activations;
};

struct VerifyReport {
  std::string folder;
  std::string source;  // empty: none was given
  std::string target;
  // Name of the GEMM engine, "reference" when models multiplied all modules; empty when that level
  // did not run.
  std::string engine;
  double min_kernel_sqnr_db = 0;
  double min_end_to_end_sqnr_db = 0;  // the lowest bar of a module
  LevelResult integrity;
  LevelResult exactness;
  LevelResult gemm;
  std::vector<ModuleVerification> modules;  // ascending by name

  // kFailed when a level failed, else kNotRun when one did not run, else kPassed.
  LevelState Verdict() const;
};

}  // namespace prepack

#endif  // PREPACK_VERIFY_REPORT_H_
