#pragma once

// Is a quantized checkpoint complete, sane and what its metadata says? It works on the canonical
// layout and is therefore the same for every format.
//
// From headers, configuration and a few small tensors:
//   what Checkpoint::Open and the format's reader check: shards against index in both directions,
//   dtypes and shapes of every quantized module against its config; here all modules that cannot
//   be read are named, not only the first
//   shapes and experts against config.json (config_shapes.h), missing layers and modules
//   (missing_modules.h), siblings and experts that are quantized differently
// From the data, in one streaming pass, unless `headers_only`:
//   what the reader checks of values: NaN, infinite and zero scales, FP8 NaN, codes outside their
//   bits, zero points of symmetric modules
//   suspicious statistics (check/judgement.h), tied weights (check/plain_statistics.h)
//   NaN and infinity in tensors that are not quantized (check/plain_statistics.h)
//   with a baseline: the SQNR of each module and outliers among its peers (baseline.h)

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/shared_value.h"
#include "prepack/base/status.h"
#include "prepack/formats/accepted.h"
#include "prepack/formats/finding.h"
#include "prepack/measure/byte_counts.h"
#include "prepack/measure/module_statistics.h"
#include "prepack/model/quantized_linear.h"
#include "prepack/model/scheme.h"

namespace prepack {

struct CheckOptions {
  std::filesystem::path source;
  std::optional<std::filesystem::path> baseline;  // the unquantized checkpoint
  bool headers_only = false;                      // excludes a baseline: kUsage
  unsigned jobs = 0;                              // threads; 0: one per CPU
  uint64_t memory_limit = 0;                      // of anonymous memory, in bytes; 0: none
  AcceptedFindings accepted = {};                 // they are reported, but fail nothing
};

struct ModuleCheck {
  std::string_view module;  // of what the report holds
  SharedValue<Scheme> scheme;
  uint64_t n = 0;
  uint64_t k = 0;

  uint64_t weights() const { return n * k; }

  std::vector<Finding> findings;        // of its data and baseline
  std::optional<CheckFigures> figures;  // none: not read, or not readable
  // Against the baseline, in dB; infinite when equal. None: not compared.
  std::optional<double> sqnr_db;
};

// The codes and scales of all modules of one scheme.
struct SchemeHistograms {
  Scheme scheme;
  size_t modules = 0;
  ByteCounts<uint64_t> codes;            // as ModuleStatistics counts them
  ByteCounts<uint64_t> scale_exponents;  // likewise
};

// What the errors of a report amount to. Several kinds may come together: the first of kMalformed,
// kUnsupported and kBadValues counts.
enum class CheckVerdict : uint8_t {
  kSound,        // no errors
  kWarnings,     // no errors, but warnings
  kBadValues,    // the structure is sound, values or the comparison with the baseline are not
  kUnsupported,  // something is sound as far as seen, but not read
  kMalformed,    // headers, index, config or modules are broken or contradict each other
};

std::string_view CheckVerdictName(CheckVerdict verdict);  // "sound", "warnings", "bad values", …
// 0; 0, or 1 when `strict`; 1; 5; 3.
int CheckExitCode(CheckVerdict verdict, bool strict);

struct CheckReport {
  std::shared_ptr<const void> held;  // what has the names of the modules
  std::string source;
  std::string baseline;  // empty: none
  bool headers_only = false;
  std::string format;  // empty: not recognised
  size_t tensors = 0;
  uint64_t tensor_bytes = 0;
  std::vector<Finding> findings;     // of the checkpoint as a whole; errors first
  std::vector<ModuleCheck> modules;  // that can be read; ascending by name
  // Of the modules that were read, by the description of their scheme; none of bf16.
  std::map<std::string, SchemeHistograms> histograms;
  CheckVerdict verdict = CheckVerdict::kSound;

  // All findings, of the checkpoint and of its modules; errors first.
  std::vector<Finding> AllFindings() const;
};

// What is wrong with the checkpoint is in the report; an error status means that the check could
// not be made: kUsage, kSystem, kInterrupted, or a baseline that cannot be opened.
Result<CheckReport> Check(const CheckOptions& options, Progress& progress);

// Puts what a report keeps of a module's statistics into the module's check and the histograms.
void KeepStatistics(const ModuleStatistics& statistics, ModuleCheck& module,
                    std::map<std::string, SchemeHistograms>& histograms);

// Whether a page of the file holds few input channels of many output channels, as GPTQ and AWQ
// store them. Formats that hold the input channels of an output channel side by side have no such
// runs.
bool SpreadsRows(const QuantizedLinear& linear);

// What one thread allocates for reading the codes, scales and zero points of `rows` output
// channels, in bytes; at most.
uint64_t MemoryOfRows(const QuantizedLinear& linear, uint64_t rows);

// How many output channels are read at once: several panels, where a line of the cache holds codes
// of many.
uint64_t RowsReadAtOnce(const QuantizedLinear& linear);

// What one thread allocates for checking panels of the module, and for comparing them with a
// baseline.
uint64_t MemoryOfCheck(const QuantizedLinear& linear, bool with_baseline);

// An error as a finding: under the identifier of the status, or "malformed", "unsupported" when it
// has none. What the status found, expected and advises becomes part of the message.
Finding FindingOf(const Status& status);

// Errors first, then warnings, then the rest; otherwise in the order they have.
void SortBySeverity(std::vector<Finding>& findings);

// The report of a check as JUnit XML, which CI systems show: one test case for the checkpoint as a
// whole and one per quantized module. Errors are failures, and so are warnings if `strict`; a
// module whose data was not read is skipped, not passed.

std::string CheckJUnit(const CheckReport& report, bool strict);

// The report as one self-contained page (report/page.h): verdict, findings, histograms of codes and
// scales for each scheme, and every module by what was measured of it.
std::string CheckHtml(const CheckReport& report);

}  // namespace prepack
