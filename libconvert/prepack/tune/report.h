#pragma once

// What was measured, and what was chosen from it. Figures of a kind are of all its modules, each
// run once; a candidate without a figure says why.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "prepack/tune/timing.h"

namespace prepack {

// All modules once, with so many rows of activations.
struct TuneStep {
  uint64_t rows = 0;
  std::optional<Timing> timing = {};
  std::string why_not = {};  // without a timing
};

// A module whose accuracy was measured.
struct SampledModule {
  std::string module = {};
  double sqnr_db = 0;  // end to end; infinite: exact
};

// One way to compute the modules of a kind.
struct TuneCandidate {
  std::string target = {};
  std::string scheme = {};                // as --scheme takes it
  bool as_stored = false;                 // it is what the checkpoint says
  std::vector<std::string> layouts = {};  // of its shapes, each once
  std::string implementation = {};        // what ran; empty: nothing did
  bool is_reference = false;              // see PreparedKernel
  uint64_t bytes = 0;
  std::optional<double> sqnr_db = {};  // mean of the sample, end to end
  std::string worst_module = {};
  std::optional<double> worst_db = {};
  std::string why_no_sqnr = {};
  std::vector<SampledModule> sample = {};  // by shape, along the depth of the model
  std::vector<TuneStep> steps = {};        // by batch

  const TuneStep* StepOf(uint64_t rows) const;
  bool IsMeasured(uint64_t rows) const;
};

// For people. A layout of every target is named with that of the candidate.
std::string LayoutsText(const TuneCandidate& candidate);

// A scheme for which a target has nothing.
struct TuneRejection {
  std::string target = {};
  std::string scheme = {};
  std::string why = {};
};

struct TunedShape {
  uint64_t n = 0;
  uint64_t k = 0;
  std::string scheme = {};  // of the weights, for people
  size_t modules = 0;
  size_t units = 0;      // each of as many modules, which run as one
  uint64_t experts = 0;  // of a mixture, of which n and k are those of the first module; else 0
  uint64_t top_k = 0;    // of them, for each token
};

// "32 × 6144x4096", "48 × 128 experts, 8 per token".
std::string ShapeText(const TunedShape& shape);

struct TunedKind {
  std::string role = {};
  std::string pattern = {};  // for --scheme
  uint32_t bits = 0;
  std::vector<TunedShape> shapes = {};
  std::vector<TuneCandidate> candidates = {};
  std::vector<TuneRejection> rejections = {};

  size_t modules() const;
  // What part of its weights so many tokens read: not all experts, if they are few.
  double ReadShare(uint64_t tokens) const;
};

// The model with one candidate of every kind.
struct TuneTotal {
  std::string target = {};
  std::string label = {};               // its schemes: "w4a16", "w4a16+w8a8"
  std::vector<size_t> candidates = {};  // by kind
  uint64_t bytes = 0;
  double read_bytes = 0;               // by the smallest batch
  std::optional<double> sqnr_db = {};  // mean over all modules of noise over signal
  std::vector<TuneStep> steps = {};

  const TuneStep* StepOf(uint64_t rows) const;
};

enum class TuneGoal : uint8_t {
  kLatency,     // least time at the smallest batch
  kThroughput,  // least time per row at the largest batch
  kAccuracy,    // least noise
  kSize,        // fewest bytes
};

struct TuneChoice {
  TuneTotal total = {};
  std::string reason = {};  // a sentence
  bool certain = false;     // nothing else is within the spread of the figures
};

// Of a target: what runs its kernels, or why nothing does.
struct TuneRuntime {
  std::string target = {};
  std::string name = {};
  std::string why_not = {};
};

struct TuneReport {
  std::string source = {};
  std::string format = {};
  std::string cpu = {};
  unsigned threads = 0;
  std::vector<unsigned> cpus = {};     // that it was pinned to
  double bandwidth = 0;                // bytes per second, read by all threads
  uint64_t cold_bytes = 0;             // that copies of weights took together
  std::vector<uint64_t> batches = {};  // ascending
  std::string activations = {};        // recorded ones; empty: Gaussian
  uint64_t layers = 0;                 // of each shape, whose accuracy was measured
  std::vector<TuneRuntime> runtimes = {};
  std::vector<TunedKind> kinds = {};
  std::map<std::string, std::string> left_out = {};  // role → why
  std::vector<TuneTotal> totals = {};                // of each target and scheme
  TuneGoal goal = TuneGoal::kLatency;
  std::optional<double> min_sqnr_db = {};
  std::optional<TuneChoice> choice = {};
  std::string why_no_choice = {};
  bool unreachable = false;  // there is none because of min_sqnr_db
  double seconds = 0;        // that it took

  size_t modules() const;
};

// Rows per second of a step, 0 without a timing; and as people read it: "0.04", "12.3", "871".
double RowsPerSecond(const TuneStep& step);
std::string RateText(const TuneStep& step);
// "12.30 ms"; "-" without a timing.
std::string SecondsText(const TuneStep& step);

// "latency" and so on, as --for takes them.
std::string_view GoalName(TuneGoal goal);
std::optional<TuneGoal> GoalFromName(std::string_view name);

// A self-contained page, with time against accuracy as a scatter.
std::string TuneHtml(const TuneReport& report);

// Adds totals of each target and scheme, and the choice for the goal, from the kinds.
void Decide(TuneReport& report);

// The lines of a file that `convert --scheme @FILE` takes: a choice for each kind, with its figures
// as comments.
std::string SchemeFileText(const TuneReport& report);

}  // namespace prepack
