#include "prepack/tune/kernel_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "prepack/doctor/doctor.h"
#include "prepack/tune/measure.h"

namespace prepack {
namespace {

// A reference implementation that would take longer for one product is not run.
constexpr double kMostReferenceSeconds = 1;

}  // namespace

struct KernelTimes::Rival {
  const KernelWork* work;
  std::unique_ptr<PreparedKernel> kernel = nullptr;
  Result<Timing> timing = Unavailable("", "it was not measured");
};

std::vector<std::pair<uint64_t, uint64_t>> RowsOfExperts(uint64_t tokens, uint64_t experts,
                                                         uint64_t top_k) {
  const uint64_t rows = tokens * top_k;
  const uint64_t active = std::min(experts, rows);
  std::vector<std::pair<uint64_t, uint64_t>> spread;
  if (active == 0) return spread;
  const uint64_t with_more = rows % active;
  spread.emplace_back(rows / active, active - with_more);
  if (with_more != 0) spread.emplace_back(rows / active + 1, with_more);
  return spread;
}

bool KernelTimes::Entry::IsOf(const KernelWork& work) const {
  const bool same_experts = mixture.has_value() == work.mixture.has_value() &&
                            (!mixture || (mixture->experts == work.mixture->experts &&
                                          mixture->top_k == work.mixture->top_k));
  return target == work.target && layout == &work.module.layout() &&
         request == work.module.request() && same_experts;
}

const KernelTimes::Entry* KernelTimes::FindEntry(const KernelWork& work) const {
  const auto entry = std::ranges::find_if(
      entries_, [&](const Entry& one) { return one.rows == work.rows && one.IsOf(work); });
  return entry == entries_.end() ? nullptr : &*entry;
}

// What a reference implementation took for fewer rows says enough.
std::string KernelTimes::WhyTooSlow(const KernelWork& work) const {
  const Entry* most = nullptr;
  for (const Entry& entry : entries_) {
    if (!entry.IsOf(work) || !entry.known.is_reference || !entry.known.timing.ok()) continue;
    if (entry.rows >= work.rows) continue;
    if (most == nullptr || most->rows < entry.rows) most = &entry;
  }
  if (most == nullptr) return "";
  const double expected = most->known.timing->seconds * static_cast<double>(work.rows) /
                          static_cast<double>(most->rows);
  if (expected <= kMostReferenceSeconds) return "";
  return fmt::format(
      "there is only a reference implementation ({}), which would take seconds for so many rows",
      most->known.implementation);
}

void KernelTimes::Prepare(Rival& rival) const {
  const KernelWork& work = *rival.work;
  const Layout& layout = work.module.layout();
  const LayoutFit fit = FitOf(layout, machine_.features);
  const auto runtime = std::ranges::find(machine_.runtimes, work.target, &TargetRuntime::target);
  if (fit.fit == CpuFit::kNot) {
    rival.timing = Unavailable(layout.id, fmt::format("its kernel {} (this CPU)", fit.why));
  } else if (runtime->runtime == nullptr) {
    rival.timing = Unavailable(layout.id, runtime->why_not);
  } else if (std::string slow = WhyTooSlow(work); !slow.empty()) {
    rival.timing = Unavailable(layout.id, slow);
  } else {
    Result<std::unique_ptr<PreparedKernel>> kernel =
        work.mixture ? runtime->runtime->PrepareExperts(work.module, *work.mixture, work.rows,
                                                        machine_.cold_bytes)
                     : runtime->runtime->Prepare(work.module, work.rows, machine_.cold_bytes);
    if (kernel.ok()) {
      rival.kernel = *std::move(kernel);
    } else {
      rival.timing = std::move(kernel).status();
    }
  }
}

void KernelTimes::Race(std::vector<Rival>& rivals, double seconds) const {
  // Runtime after runtime: threads of one that has just run keep looking for work for a while.
  for (const TargetRuntime& runtime : machine_.runtimes) {
    std::vector<TimedProduct*> products;
    std::vector<Rival*> runners;
    for (Rival& rival : rivals) {
      if (rival.kernel == nullptr || rival.work->target != runtime.target) continue;
      products.push_back(rival.kernel.get());
      runners.push_back(&rival);
    }
    std::vector<Result<Timing>> timings = MeasureInTurn(products, {.seconds = seconds});
    for (size_t i = 0; i < runners.size(); ++i) runners[i]->timing = std::move(timings[i]);
  }
}

Status KernelTimes::Measure(const std::vector<const KernelWork*>& rivals, double seconds) {
  std::vector<Rival> unknown;
  for (const KernelWork* work : rivals) {
    if (FindEntry(*work) != nullptr) continue;
    Rival rival{.work = work};
    Prepare(rival);
    unknown.push_back(std::move(rival));
  }
  Race(unknown, seconds);
  for (const Rival& rival : unknown) {
    if (!rival.timing.ok() && !IsOfOneCandidate(rival.timing.status())) {
      return rival.timing.status();
    }
    const KernelWork& work = *rival.work;
    entries_.push_back(
        {.target = work.target,
         .layout = &work.module.layout(),
         .request = work.module.request(),
         .rows = work.rows,
         .mixture = work.mixture,
         .known = {.timing = rival.timing,
                   .implementation = rival.kernel ? rival.kernel->implementation() : "",
                   .is_reference = rival.kernel && rival.kernel->is_reference()}});
  }
  return {};
}

}  // namespace prepack
