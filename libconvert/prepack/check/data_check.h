#pragma once

// The pass over the data. Modules are measured in parallel but judged in their order, so that the
// report does not depend on the threads.

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/check/check.h"
#include "prepack/check/measured.h"
#include "prepack/check/wired_blocks.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/accepted.h"
#include "prepack/formats/format.h"
#include "prepack/io/memory_limit.h"
#include "prepack/measure/baseline.h"
#include "prepack/measure/measurements.h"
#include "prepack/model/panel.h"

namespace prepack {

// An error in the input belongs in the report; an error of the run ends it.
inline bool IsFinding(const Status& status) {
  return status.kind() == ErrorKind::kMalformed || status.kind() == ErrorKind::kUnsupported;
}

// The check of `options`, or of one part of it: then the report says nothing, but `measured` what
// was measured. Or the check that takes what all parts have measured.
Result<CheckReport> CheckWith(const CheckOptions& options, Measurements& measured,
                              Progress& progress);

// The check of all data, or the share of one part of it: then it judges nothing.
class DataCheck {
 public:
  // Everything must outlive this. `report` holds the modules of the model.
  DataCheck(const Checkpoint& checkpoint, const QuantizedModel& model, const Checkpoint* baseline,
            const AcceptedFindings& accepted, Measurements& measured, CheckReport& report);
  ~DataCheck();
  DataCheck(const DataCheck&) = delete;
  DataCheck& operator=(const DataCheck&) = delete;

  // Before Run.
  MemoryNeed Need() const;
  Status Run(unsigned threads, Progress& progress);

 private:
  struct Buffers;  // of one thread
  struct Stripe;   // what was measured in one

  void FindWeights();
  size_t MostStripes() const;
  Status MeasureStripes(unsigned threads, Progress& progress);
  Status MeasureStrip(size_t module, uint64_t n0, uint64_t count, Buffers& buffers,
                      Stripe& result) const;
  Status CheckStripe(size_t index, Buffers& buffers, Progress& progress);
  Status LookForText(const RowStripe& stripe, const QuantizedLinear& linear, Stripe& result) const;
  ModuleMeasurement Conclude(size_t module);
  Status Report(size_t module, ModuleMeasurement measurement);
  Status TakeMeasurements();
  Status TakeNoted(size_t module, Finding finding);
  void KeepRest();
  MeasuredThing ThingOf(std::string_view kind, size_t module) const;
  void ReportNoted();
  void ReportWiring();
  void ReportOutliers();

  const Checkpoint& checkpoint_;
  const QuantizedModel& model_;
  const Checkpoint* baseline_;
  const AcceptedFindings& accepted_;
  Measurements& measured_;
  CheckReport& report_;
  std::vector<std::string> units_;  // of modules; none if all of the model is measured here
  WiredBlocks blocks_;
  std::vector<std::atomic<size_t>> unread_;             // stripes, by module
  std::vector<std::optional<BaselineWeight>> weights_;  // by module; none: there is no baseline
  std::vector<RowStripe> stripes_;
  std::vector<std::unique_ptr<Stripe>> results_;
  std::mutex histograms_mutex_;               // of the report's: threads add to them
  std::vector<CheckVerdict> verdicts_;        // by module; none is sound
  std::vector<std::vector<float>> energies_;  // of input channels, by module; empty: not measured
};

}  // namespace prepack
