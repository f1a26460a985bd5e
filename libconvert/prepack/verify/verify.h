#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/convert/source.h"
#include "prepack/packed/manifest.h"
#include "prepack/verify/report/report.h"

namespace prepack {

enum class EngineChoice : uint8_t {
  kAuto,       // oneDNN's primitives and our models of the kernels; where oneDNN cannot be had, the
               // models alone, and the level has a note that says why
  kOneDnn,     // the same; without oneDNN the level does not run
  kReference,  // our models of the kernels alone
};
inline constexpr std::array kEngineChoices = {EngineChoice::kAuto, EngineChoice::kOneDnn,
                                              EngineChoice::kReference};
std::string_view EngineChoiceName(EngineChoice choice);  // "auto", "onednn", "reference"

// One --min-sqnr option: the end-to-end bar of the modules that the pattern is found in.
struct SqnrBar {
  std::string pattern;  // as Python's re.search takes it; empty: every module
  double decibel = 0;
};

struct SampleChoice {
  double fraction = 1;  // above 0, at most 1
  uint64_t seed = 0;
};

// Of each module, which are multiplied with all activations unless all are.
inline constexpr uint64_t kSampledWeights = uint64_t{1} << 17;

struct VerifyOptions {
  std::filesystem::path folder;
  // None: where the manifest says, if it is there. Without a source exactness and GEMM do not run.
  std::optional<std::filesystem::path> source;
  GgufSource gguf;                                   // if that is such a file
  std::optional<std::filesystem::path> baseline;     // the unquantized checkpoint
  std::optional<std::filesystem::path> activations;  // .safetensors: MODULE → x [M, K]
  std::vector<Level> skip;                           // levels not to run; they are then "not run"
  EngineChoice engine = EngineChoice::kAuto;
  // Let oneDNN reorder weights whose form is not what its primitive wants here.
  bool repack = false;
  // Weights of each module that are multiplied with all activations, if it has more; UINT64_MAX:
  // all. The weights themselves are compared in any case.
  uint64_t sampled_weights = kSampledWeights;
  // What was decided otherwise than the source says fails exactness.
  bool strict = false;
  std::vector<SqnrBar> min_sqnr;       // the last one that speaks of a module decides
  std::optional<SampleChoice> sample;  // none: every module
  unsigned jobs = 0;                   // threads; 0: one per CPU
  uint64_t memory_limit = 0;           // of anonymous memory, in bytes; 0: none
};

// "40" or "PATTERN=40"; kUsage if it is not a number of dB from 0 to 200.
Result<SqnrBar> ParseSqnrBar(std::string_view text);

// Verifies a packed folder on the levels of report.h. What is wrong with the folder is in the
// report; an error status means that it could not be verified at all (not a packed folder, a
// manifest that cannot be read, a source that cannot be read, an I/O error).
Result<VerifyReport> Verify(const VerifyOptions& options, Progress& progress);

// Modules that stand for all: of every layout, shape and scheme a fraction, and at least one. The
// same for the same seed, whatever else is in the folder: a module is taken by the hash of its
// name.
ModuleSample ChooseSample(const Manifest& manifest, const SampleChoice& choice);

}  // namespace prepack
