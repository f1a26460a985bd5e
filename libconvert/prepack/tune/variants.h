#pragma once

// Every way in which a conversion with one --scheme option could pack the model, and what of them
// differs for a kind of modules.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/convert/plan.h"
#include "prepack/formats/format.h"
#include "prepack/packed/folder.h"
#include "prepack/tune/kinds.h"
#include "prepack/tune/report.h"

namespace prepack {

// A conversion with one scheme.
struct TuneVariant {
  std::string scheme = {};  // "w4a8"; "auto"
  PlanOptions options = {};
  std::optional<Plan> plan = {};  // of the whole model
  Status failure = {};            // why there is no plan, or no packed sample
  // The packed sample; null until it is there.
  std::unique_ptr<PackedFolder> folder = {};

  const std::string& target() const { return options.target; }
  bool IsFor(const TuneKind& kind) const;
};

// Of a kind, the candidate and the variant that it comes from.
struct KindCandidate {
  TuneCandidate candidate;
  size_t variant = 0;
};

struct KindCandidates {
  std::vector<KindCandidate> candidates = {};
  std::vector<TuneRejection> rejections = {};
};

// One for each target and scheme that is for some kind, in this order. The errors of MakePlan that
// are not of one scheme alone. bf16 fails where the model would take more than `memory_bytes` in
// it (0: not known).
Result<std::vector<TuneVariant>> PlanVariants(const Checkpoint& checkpoint,
                                              const QuantizedModel& model,
                                              const std::vector<TuneKind>& kinds,
                                              const std::vector<std::string>& targets,
                                              const PlanOptions& common, uint64_t memory_bytes);

// What the variants make of the kind. Variants that make the same of it are one candidate, named by
// the first scheme that is not "auto".
KindCandidates CandidatesOf(const TuneKind& kind, const std::vector<TuneVariant>& variants);

}  // namespace prepack
