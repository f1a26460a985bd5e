// The pass over the data and the verdict. Modules are measured in parallel but judged in their
// order, so that the report does not depend on the threads.

#include "prepack/check/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "prepack/base/parallel.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/check/baseline.h"
#include "prepack/check/channel_orders.h"
#include "prepack/check/code_windows.h"
#include "prepack/check/judgement.h"
#include "prepack/check/model_checks.h"
#include "prepack/check/plain_statistics.h"
#include "prepack/check/wiring.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "prepack/io/memory_limit.h"
#include "prepack/model/panel.h"

namespace prepack {
namespace {

// An error in the input belongs in the report; an error of the run ends it.
bool IsFinding(const Status& status) {
  return status.kind() == ErrorKind::kMalformed || status.kind() == ErrorKind::kUnsupported;
}

void Raise(CheckVerdict& verdict, CheckVerdict to) {
  verdict = std::max(verdict, to);
}

// Records an error that was found without reading values.
void NoteStructure(const Status& status, Finding finding, CheckReport& report) {
  if (!finding.accepted) {
    Raise(report.verdict, status.kind() == ErrorKind::kUnsupported ? CheckVerdict::kUnsupported
                                                                   : CheckVerdict::kMalformed);
  }
  report.findings.push_back(std::move(finding));
}

// Of the whole checkpoint: nothing can be checked, so nobody can accept it.
void NoteUnreadable(const Status& status, CheckReport& report) {
  NoteStructure(status, FindingOf(status), report);
}

// Of one thread.
struct StripeBuffers {
  StatisticsBuffers numbers;
  ColumnWindows columns;
};

// The results of one stripe of a module.
struct StripeResult {
  ModuleStatistics statistics;
  std::vector<float>
      energies;  // of the input channels; only for first stripes, which siblings have as well
  BaselineSums baseline;
  std::optional<TextRun> text;
  StoredBlocks blocks;  // of act-order modules; others are searched in order
  Status error;         // of the module's data
};

// Buffers of one thread for tensors that are not quantized: two of 1 MiB, or of as many floats.
constexpr uint64_t kPlainMemory = uint64_t{4} << 20;

class DataCheck {
 public:
  DataCheck(const Checkpoint& checkpoint, const QuantizedModel& model, const Checkpoint* baseline,
            const AcceptedFindings& accepted, CheckReport& report)
      : checkpoint_(checkpoint),
        model_(model),
        baseline_(baseline),
        accepted_(accepted),
        report_(report),
        blocks_(checkpoint, model) {
    for (size_t i = 0; i < model_.modules.size(); ++i) {
      AppendStripes(i, model_.modules[i]->n(), model_.modules[i]->k(), stripes_);
    }
  }

  // Before Run.
  MemoryNeed Need() const {
    // Results of a module's stripes live until all of them are there, which are those of a few
    // modules for each thread.
    MemoryNeed need{.shared = model_.modules.size() * sizeof(ModuleCheck) +
                              MostStripes() * sizeof(StripeResult),
                    .per_thread = kPlainMemory + sizeof(StripeResult)};
    for (const auto& linear : model_.modules) {
      // One row in eight is kept, as a hash of eight bytes, in lists that grow by doubling.
      need.shared += 2 * linear->n();
      if (HasSiblings(linear->module())) need.shared += linear->k() * sizeof(float);
      need.per_thread = std::max(need.per_thread, MemoryOfCheck(*linear, baseline_ != nullptr));
    }
    need.per_thread += blocks_.MemoryOfThread();
    // By then no other thread is working.
    for (const auto& linear : model_.modules) {
      if (linear->k() > kMostHiddenChannels || !HasSiblings(linear->module())) continue;
      need.per_thread = std::max(need.per_thread, MemoryOfHiddenChannels(linear->k()));
    }
    return need;
  }

  Status Run(unsigned threads, Progress& progress) {
    FindWeights();
    results_.resize(stripes_.size());
    verdicts_.resize(model_.modules.size());
    unread_ = std::vector<std::atomic<size_t>>(model_.modules.size());
    for (const RowStripe& stripe : stripes_) ++unread_[stripe.matrix];
    energies_.resize(model_.modules.size());
    uint64_t total = 0;
    for (const auto& linear : model_.modules) total += linear->source_bytes();
    progress.Begin("checking", total);
    std::vector<StripeBuffers> buffers(threads);
    PREPACK_TRY(ParallelFor(stripes_.size(), threads, [&](size_t index, unsigned worker) {
      return CheckStripe(index, buffers[worker], progress);
    }));
    buffers.clear();
    for (const CheckVerdict verdict : verdicts_) Raise(report_.verdict, verdict);
    ReportNoted();
    JudgeModel(report_.modules, report_.findings);
    PREPACK_TRY(JudgeHiddenChannels(checkpoint_, energies_, report_.modules));
    JudgeSiblings(report_.modules, energies_);
    ReportWiring();
    if (baseline_ != nullptr) ReportOutliers();
    return {};
  }

 private:
  void FindWeights() {
    weights_.resize(model_.modules.size());
    if (baseline_ == nullptr) return;
    for (size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = FindBaselineWeight(*baseline_,
                                       {.name = model_.modules[i]->module(),
                                        .n = model_.modules[i]->n(),
                                        .k = model_.modules[i]->k()},
                                       report_.modules[i].findings);
    }
  }

  // Of a module.
  size_t MostStripes() const {
    size_t most = 0;
    for (size_t i = 0, first = 0; i < stripes_.size(); ++i) {
      if (stripes_[i].matrix != stripes_[first].matrix) first = i;
      most = std::max(most, i + 1 - first);
    }
    return most;
  }

  static Status Measure(const QuantizedLinear& linear, uint64_t n0, uint64_t rows,
                        StripeBuffers& buffers, ModuleStatistics& statistics) {
    PREPACK_TRY(ReadRows(linear, n0, rows, buffers.numbers));
    const Scheme& scheme = linear.scheme();
    const uint64_t k = linear.k();
    CountRows(scheme, linear.stored_scale_dtype(), k, rows, buffers.numbers, statistics);
    HashRows(n0, rows, buffers.numbers.codes, statistics.windows);
    HashScales(n0, rows, buffers.numbers.scales, statistics);
    if (SpreadsRows(linear)) {
      buffers.columns.Add(scheme, k, rows, buffers.numbers, statistics.windows);
    }
    return {};
  }

  Status CheckStripe(size_t index, StripeBuffers& buffers, Progress& progress) {
    const RowStripe& stripe = stripes_[index];
    const QuantizedLinear& linear = *model_.modules[stripe.matrix];
    results_[index] = std::make_unique<StripeResult>();
    StripeResult& result = *results_[index];
    progress.BeginItem(linear.module());
    if (stripe.n0 == 0) {
      PREPACK_TRY_ASSIGN(const uint64_t stray_bits, linear.CountStrayBits());
      result.statistics.stray_bits = stray_bits;
    }
    buffers.columns.Begin(linear.k());
    const uint64_t panel = StripePanelRows(linear.k());
    for (uint64_t row = 0; row < stripe.rows; row += panel) {
      if (CancellationRequested()) return Interrupted(linear.module());
      const uint64_t n0 = stripe.n0 + row;
      const uint64_t rows = std::min(panel, stripe.rows - row);
      Status status = Measure(linear, n0, rows, buffers, result.statistics);
      // One panel is enough to compare siblings by.
      if (status.ok() && n0 == 0 && HasSiblings(linear.module())) {
        status = MeasureColumns(linear, rows, buffers.numbers, result);
      }
      if (status.ok() && weights_[stripe.matrix]) {
        status = CompareWithBaseline(linear, *baseline_, *weights_[stripe.matrix], n0, rows,
                                     result.baseline);
      }
      if (!status.ok()) {
        if (!IsFinding(status)) return status;
        result.error = std::move(status);
        break;
      }
    }
    if (SpreadsRows(linear)) buffers.columns.End(result.statistics.windows);
    Status status = LookForText(stripe, linear, result);
    if (status.ok() && --unread_[stripe.matrix] == 0) {
      status = Conclude(stripe.matrix);
      if (status.ok()) status = blocks_.Done(stripe.matrix);
    }
    progress.Add(linear.source_bytes() * stripe.rows / linear.n());
    return status;
  }

  static Status MeasureColumns(const QuantizedLinear& linear, uint64_t rows,
                               const StatisticsBuffers& numbers, StripeResult& result) {
    PREPACK_TRY_ASSIGN(const SharedOrder order, linear.KOrder());
    result.energies = ColumnEnergies(linear.scheme(), linear.k(), rows, numbers, *order);
    return {};
  }

  // Searches the stripe's share of the codes tensor, as stored.
  Status LookForText(const RowStripe& stripe, const QuantizedLinear& linear,
                     StripeResult& result) const {
    if (linear.places() == nullptr || linear.scheme().bits < kMinTextBits) return {};
    const StoredTensor* codes = checkpoint_.Find(linear.places()->WhereCode(0, 0)[0].tensor);
    if (codes == nullptr) return {};
    const uint64_t each = codes->bytes / linear.n();
    const uint64_t begin = each * stripe.n0;
    const bool last = stripe.n0 + stripe.rows == linear.n();
    const uint64_t bytes = (last ? codes->bytes : begin + each * stripe.rows) - begin;
    if (bytes < kMinText) return {};
    return checkpoint_.Visit(*codes, begin, bytes, [&](const std::byte* stored) {
      result.text = FindText({stored, static_cast<size_t>(bytes)});
      if (result.text) result.text->offset += begin;
      if (linear.reordered()) result.blocks.Add(begin, {stored, static_cast<size_t>(bytes)});
    });
  }

  void ReportWiring() {
    for (const WiredBlocks::Fault& fault : blocks_.Faults()) {
      ModuleCheck& check = report_.modules[fault.module];
      check.findings.push_back(fault.exchanged
                                   ? MakeFinding("modules-exchanged", check.module, fault.message)
                                   : MakeFinding("module-alien", check.module, fault.message));
    }
  }

  // Merges the stripes of a module in their order, and forgets them: there may be very many
  // modules.
  Status Conclude(size_t module) {
    ModuleCheck& check = report_.modules[module];
    ModuleStatistics statistics;
    BaselineSums baseline;
    std::optional<TextRun> text;
    StoredBlocks blocks;
    bool readable = true;
    auto stripe = std::ranges::lower_bound(stripes_, module, {}, &RowStripe::matrix);
    for (; stripe != stripes_.end() && stripe->matrix == module; ++stripe) {
      const std::unique_ptr<StripeResult> taken =
          std::move(results_[static_cast<size_t>(stripe - stripes_.begin())]);
      StripeResult& result = *taken;
      statistics.Merge(result.statistics);
      if (result.text && !text) text = result.text;
      blocks.Merge(result.blocks);
      if (!result.energies.empty()) energies_[module] = std::move(result.energies);
      baseline.Merge(result.baseline);
      if (result.error.ok() || !readable) continue;
      readable = false;
      Finding finding = FindingOf(result.error);
      PREPACK_TRY(accepted_.Mark(finding, check.module));
      if (!finding.accepted) {
        verdicts_[module] = result.error.kind() == ErrorKind::kUnsupported
                                ? CheckVerdict::kUnsupported
                                : CheckVerdict::kBadValues;
      }
      check.findings.push_back(std::move(finding));
    }
    if (text) {
      check.findings.push_back(
          MakeFinding("codes-damaged", check.module,
                      fmt::format("{} bytes of the codes, from byte {} on, are text: \"{}\"",
                                  text->bytes, text->offset, text->beginning)));
    }
    if (const uint64_t repeated = blocks.Repeated(); repeated >= StoredBlocks::kMinRepeated) {
      check.findings.push_back(MakeFinding(
          "codes-damaged", check.module,
          fmt::format("{} bytes of the codes occur twice", repeated * StoredBlocks::kBytes)));
    }
    if (!readable) return {};
    JudgeModule(*model_.modules[module], statistics, check.findings);
    statistics.windows.row_hashes = {};  // judged, and as many as rows
    check.statistics = std::move(statistics);
    if (weights_[module]) check.sqnr_db = baseline.SqnrDb();
    return {};
  }

  // What the reader of a module met and went on, because it is accepted.
  void ReportNoted() {
    for (const auto& [module, finding] : accepted_.Noted()) {
      const auto check = std::ranges::find(report_.modules, module, &ModuleCheck::module);
      if (check == report_.modules.end()) continue;
      // Scales of zero are counted, whatever their groups hold: here some hold weights.
      if (finding.id == std::string_view(FindingId("scale-zero"))) {
        std::erase_if(check->findings, [](const Finding& other) {
          return other.id == std::string_view(FindingId("scale-zero-empty"));
        });
      }
      check->findings.push_back(finding);
    }
  }

  void ReportOutliers() {
    std::vector<PeerFigure> figures;
    std::vector<ModuleCheck*> checks;
    for (ModuleCheck& check : report_.modules) {
      if (!check.sqnr_db) continue;
      figures.push_back({.peers = PeersOf(check.module, check.scheme),
                         .sqnr_db = *check.sqnr_db,
                         .outlier_below_db = {}});
      checks.push_back(&check);
    }
    MarkOutliers(figures);
    for (size_t i = 0; i < figures.size(); ++i) {
      if (figures[i].outlier_below_db) {
        checks[i]->findings.push_back(
            MakeFinding("baseline-outlier", checks[i]->module,
                        fmt::format("SQNR {:.1f} dB, {:.1f} dB below the median of its peers",
                                    figures[i].sqnr_db, *figures[i].outlier_below_db)));
      } else if (!(figures[i].sqnr_db >= kUnrelatedDb)) {
        checks[i]->findings.push_back(
            MakeFinding("baseline-unrelated", checks[i]->module,
                        fmt::format("SQNR {:.1f} dB (at least {} if it is the same weight)",
                                    figures[i].sqnr_db, kUnrelatedDb)));
      }
    }
  }

  const Checkpoint& checkpoint_;
  const QuantizedModel& model_;
  const Checkpoint* baseline_;
  const AcceptedFindings& accepted_;
  CheckReport& report_;
  WiredBlocks blocks_;
  std::vector<std::atomic<size_t>> unread_;             // stripes, by module
  std::vector<std::optional<BaselineWeight>> weights_;  // of the baseline, by module
  std::vector<RowStripe> stripes_;
  std::vector<std::unique_ptr<StripeResult>> results_;
  std::vector<CheckVerdict> verdicts_;        // by module; none is sound
  std::vector<std::vector<float>> energies_;  // of input channels, by module; empty: not measured
};

void CheckStructure(const Checkpoint& checkpoint, const QuantizedModel& model,
                    CheckReport& report) {
  std::vector<Finding>& findings = report.findings;
  CheckConfigShapes(checkpoint, model, findings);
  CheckLayers(checkpoint, findings);
  CheckMissingModules(checkpoint, findings);
  CheckExperts(checkpoint, model, findings);
  if (model.modules.empty() && model.errors.empty()) {
    findings.push_back(MakeFinding("nothing-quantized", "config.json",
                                   "no module is quantized, so there was nothing to check"));
  }
}

// One that nobody has accepted.
bool Has(const std::vector<Finding>& findings, Severity severity) {
  return std::ranges::any_of(findings, [&](const Finding& finding) {
    return finding.severity == severity && !finding.accepted;
  });
}

Status MarkAll(const AcceptedFindings& accepted, std::string_view module,
               std::vector<Finding>& findings) {
  for (Finding& finding : findings) PREPACK_TRY(accepted.Mark(finding, module));
  return {};
}

// Of a checkpoint that could be read.
Status MarkAccepted(const CheckOptions& options, CheckReport& report) {
  PREPACK_TRY(MarkAll(options.accepted, "", report.findings));
  for (ModuleCheck& module : report.modules) {
    PREPACK_TRY(MarkAll(options.accepted, module.module, module.findings));
  }
  // Headers alone cannot tell what the data holds.
  if (options.headers_only) return {};
  std::ranges::move(UnusedAcceptances(options.accepted), std::back_inserter(report.findings));
  return {};
}

Status CheckOpened(const CheckOptions& options, const Checkpoint& checkpoint,
                   const Checkpoint* baseline, Progress& progress, CheckReport& report) {
  report.tensors = checkpoint.tensors().size();
  report.tensor_bytes = checkpoint.total_bytes();
  Result<QuantizedModel> model = ExamineQuantizedModel(checkpoint, options.accepted);
  if (!model.ok()) {
    if (!IsFinding(model.status())) return model.status();
    NoteUnreadable(model.status(), report);
    return {};
  }
  report.format = model->format;
  for (const auto& linear : model->modules) {
    report.modules.push_back({.module = linear->module(),
                              .scheme = linear->scheme(),
                              .n = linear->n(),
                              .k = linear->k(),
                              .findings = {},
                              .statistics = {},
                              .sqnr_db = {}});
  }
  report.findings = std::move(model->findings);
  CheckStructure(checkpoint, *model, report);
  PREPACK_TRY(MarkAll(options.accepted, "", report.findings));
  if (Has(report.findings, Severity::kError)) Raise(report.verdict, CheckVerdict::kMalformed);
  for (const Status& error : model->errors) {
    if (!IsFinding(error)) return error;
    Finding finding = FindingOf(error);
    PREPACK_TRY(options.accepted.Mark(finding, ""));
    NoteStructure(error, std::move(finding), report);
  }
  Status status = CheckTiedWeights(checkpoint, *model, !options.headers_only, report.findings);
  if (!status.ok() || options.headers_only) return status;
  DataCheck data(checkpoint, *model, baseline, options.accepted, report);
  PREPACK_TRY_ASSIGN(const unsigned threads,
                     ThreadsWithin(data.Need(), options.jobs, options.memory_limit, "checked"));
  status = data.Run(threads, progress);
  if (!status.ok()) return status;
  if (baseline != nullptr) {
    status = CompareOtherTensors(checkpoint, *model, *baseline, threads, progress, report.findings);
  }
  if (!status.ok()) return status;
  return CheckPlainValues(checkpoint, *model, threads, progress, report.findings);
}

}  // namespace

std::string_view CheckVerdictName(CheckVerdict verdict) {
  switch (verdict) {
    case CheckVerdict::kSound:
      return "sound";
    case CheckVerdict::kWarnings:
      return "warnings";
    case CheckVerdict::kBadValues:
      return "bad values";
    case CheckVerdict::kUnsupported:
      return "unsupported";
    case CheckVerdict::kMalformed:
      return "malformed";
  }
  return "";
}

int CheckExitCode(CheckVerdict verdict, bool strict) {
  switch (verdict) {
    case CheckVerdict::kSound:
      return 0;
    case CheckVerdict::kWarnings:
      return strict ? static_cast<int>(ErrorKind::kCheckFailed) : 0;
    case CheckVerdict::kBadValues:
      return static_cast<int>(ErrorKind::kCheckFailed);
    case CheckVerdict::kUnsupported:
      return static_cast<int>(ErrorKind::kUnsupported);
    case CheckVerdict::kMalformed:
      return static_cast<int>(ErrorKind::kMalformed);
  }
  return static_cast<int>(ErrorKind::kCheckFailed);
}

std::vector<Finding> CheckReport::AllFindings() const {
  std::vector<Finding> all = findings;
  for (const ModuleCheck& module : modules) {
    all.insert(all.end(), module.findings.begin(), module.findings.end());
  }
  SortBySeverity(all);
  return all;
}

Result<CheckReport> Check(const CheckOptions& options, Progress& progress) {
  if (options.headers_only && options.baseline) {
    return Usage("--headers", "comparing with a baseline needs the data");
  }
  std::optional<Checkpoint> baseline;
  if (options.baseline) {
    PREPACK_TRY_ASSIGN(Checkpoint opened, Checkpoint::Open(*options.baseline));
    baseline = std::move(opened);
  }
  CheckReport report;
  report.source = options.source.string();
  report.baseline = options.baseline ? options.baseline->string() : "";
  report.headers_only = options.headers_only;
  const Result<Checkpoint> checkpoint = Checkpoint::Open(options.source);
  if (checkpoint.ok()) {
    Status status =
        CheckOpened(options, *checkpoint, baseline ? &*baseline : nullptr, progress, report);
    if (!status.ok()) return status;
  } else if (IsFinding(checkpoint.status())) {
    NoteUnreadable(checkpoint.status(), report);
  } else {
    return checkpoint.status();
  }
  if (!report.format.empty()) PREPACK_TRY(MarkAccepted(options, report));
  SortBySeverity(report.findings);
  const std::vector<Finding> all = report.AllFindings();
  if (Has(all, Severity::kError)) Raise(report.verdict, CheckVerdict::kBadValues);
  if (Has(all, Severity::kWarning)) Raise(report.verdict, CheckVerdict::kWarnings);
  return report;
}

bool SpreadsRows(const QuantizedLinear& linear) {
  return linear.wide_rows() > 1 || linear.reordered();
}

uint64_t MemoryOfRows(const QuantizedLinear& linear, uint64_t rows) {
  const uint64_t codes = rows * PanelRowBytes(linear.scheme().code, linear.k());
  const uint64_t numbers = rows * linear.groups() * (sizeof(float) + sizeof(uint8_t));
  // The words that codes and zero points are unpacked from, and the order of the input channels, as
  // stored and as kept.
  const uint64_t stored = codes + rows * linear.groups() * sizeof(uint32_t);
  const uint64_t order = linear.reordered() ? linear.k() * 4 * sizeof(uint32_t) : 0;
  return codes + numbers + stored + order;
}

uint64_t MemoryOfCheck(const QuantizedLinear& linear, bool with_baseline) {
  const uint64_t k = linear.k();
  const uint64_t rows = std::min(StripePanelRows(k), linear.n());
  // Energies, in k_order and in the checkpoint's order; scales and zero points of a row.
  uint64_t bytes = MemoryOfRows(linear, rows) + 4 * k * sizeof(float);
  // Sums of two kinds by input channel, those of nibbles apart, and hashes of eights of them.
  if (SpreadsRows(linear)) bytes += k * (2 * sizeof(uint32_t) + 2 * sizeof(uint16_t) + 2);
  if (with_baseline) bytes += MemoryOfRows(linear, rows) + (rows + 1) * k * 2 * sizeof(float);
  return bytes;
}

namespace {

const FindingKind& KindOf(const Status& status) {
  const std::span<const FindingKind> kinds = AllFindingKinds();
  const auto it = std::ranges::find(kinds, std::string_view(status.id()), &FindingKind::id);
  if (it != kinds.end()) return *it;
  return (status.kind() == ErrorKind::kUnsupported ? FindingId("unsupported")
                                                   : FindingId("malformed"))
      .kind();
}

std::string MessageOf(const Status& status) {
  std::string message = status.what();
  if (!status.found().empty() && !status.expected().empty()) {
    message += fmt::format(" (found {}, expected {})", status.found(), status.expected());
  } else if (!status.found().empty()) {
    message += fmt::format(" (found {})", status.found());
  } else if (!status.expected().empty()) {
    message += fmt::format(" (expected {})", status.expected());
  }
  if (!status.hint().empty()) message += ". " + status.hint();
  return message;
}

}  // namespace

Finding MakeFinding(FindingId id, std::string_view where, std::string_view message) {
  const FindingKind& kind = id.kind();
  return {.id = kind.id,
          .severity = kind.severity,
          .where = std::string(where),
          .message = std::string(message),
          .hint = kind.hint,
          .more = 0,
          .accepted = false};
}

Finding FindingOf(const Status& status) {
  const FindingKind& kind = KindOf(status);
  return {.id = kind.id,
          .severity = Severity::kError,  // whatever the table says, because it stopped the reader
          .where = status.where(),
          .message = MessageOf(status),
          // The status's advice is more specific than the table's.
          .hint = status.hint().empty() ? kind.hint : std::string_view(),
          .more = 0,
          .accepted = false};
}

void SortBySeverity(std::vector<Finding>& findings) {
  std::ranges::stable_sort(findings, std::greater{}, &Finding::severity);
}

}  // namespace prepack
