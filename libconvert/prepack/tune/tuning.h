#pragma once

// The measurements of one run: packs the sample of every variant, and fills in the figures of the
// candidates of every kind.

#include <cstdint>
#include <optional>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "prepack/io/scratch_folder.h"
#include "prepack/tune/accuracy.h"
#include "prepack/tune/kernel_times.h"
#include "prepack/tune/kinds.h"
#include "prepack/tune/tune.h"
#include "prepack/tune/variants.h"
#include "prepack/verify/second/decoder.h"

namespace prepack {

// A kind, and what its modules could become.
struct KindInWork {
  const TuneKind* kind = nullptr;
  KindCandidates found;
};

class Tuning {
 public:
  // All arguments must outlive it.
  Tuning(const TuneMachine& machine, const TuneOptions& options, const Checkpoint& checkpoint,
         const QuantizedModel& model, Progress& progress);

  // In this order. Packs the samples of all variants that a candidate comes from.
  Status PackSamples(const std::vector<KindInWork>& kinds, std::vector<TuneVariant>& variants);
  Status MeasureTimes(const std::vector<TuneVariant>& variants, std::vector<KindInWork>& kinds);
  Status MeasureAccuracies(const std::vector<TuneVariant>& variants,
                           std::vector<KindInWork>& kinds);

 private:
  Status PackSample(TuneVariant& variant, const std::filesystem::path& sample);
  Status MeasureAccuracy(const KindInWork& kind, const TuneVariant& variant,
                         const SecondDecoder& source, TuneCandidate& candidate);
  Status MeasureShape(const std::vector<TuneVariant>& variants, KindInWork& kind,
                      const TuneShape& shape, uint64_t rows);

  const TuneMachine& machine_;
  const TuneOptions& options_;
  const Checkpoint& checkpoint_;
  const QuantizedModel& model_;
  Progress& progress_;
  std::optional<ScratchFolder> scratch_;
  std::optional<Checkpoint> recorded_;
  KernelTimes times_;
  double seconds_of_cell_ = 0;  // for the rivals of one shape and batch
};

}  // namespace prepack
