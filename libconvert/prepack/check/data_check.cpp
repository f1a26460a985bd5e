#include "prepack/check/data_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "prepack/base/parallel.h"
#include "prepack/check/channel_orders.h"
#include "prepack/check/judgement.h"
#include "prepack/check/model_checks.h"
#include "prepack/measure/code_windows.h"
#include "prepack/measure/module_statistics.h"

namespace prepack {
namespace {

// Buffers of one thread for tensors that are not quantized: two of 1 MiB, or of as many floats.
constexpr uint64_t kPlainMemory = uint64_t{4} << 20;

// What the counts of a module's statistics take at most, by codes and by exponents.
constexpr uint64_t kMostCounts =
    ByteCounts<uint64_t>::kValues * (2 * sizeof(uint64_t) + sizeof(uint32_t));

void MeasureRows(const QuantizedLinear& linear, uint64_t n0, uint64_t rows,
                 const RowNumbers& numbers, ColumnWindows& columns, ModuleStatistics& statistics) {
  const Scheme& scheme = linear.scheme();
  const uint64_t k = linear.k();
  CountRows(scheme, linear.stored_scale_dtype(), k, rows, numbers, statistics);
  HashRows(n0, rows, numbers.codes, statistics.windows);
  HashScales(n0, rows, numbers.scales, statistics);
  if (SpreadsRows(linear)) columns.Add(scheme, k, rows, numbers, statistics.windows);
}

Status MeasureColumns(const QuantizedLinear& linear, uint64_t rows, const RowNumbers& numbers,
                      std::vector<float>& energies) {
  PREPACK_TRY_ASSIGN(const SharedOrder order, linear.KOrder());
  energies = ColumnEnergies(linear.scheme(), linear.k(), rows, numbers, *order);
  return {};
}

}  // namespace

struct DataCheck::Buffers {
  StatisticsBuffers numbers;
  ColumnWindows columns;
};

struct DataCheck::Stripe {
  ModuleStatistics statistics;
  std::vector<float>
      energies;  // of the input channels; only for first stripes, which siblings have as well
  BaselineSums baseline;
  std::optional<TextRun> text;
  StoredBlocks blocks;  // of act-order modules; others are searched in order
  Status error;         // of the module's data
};

DataCheck::DataCheck(const Checkpoint& checkpoint, const QuantizedModel& model,
                     const Checkpoint* baseline, const AcceptedFindings& accepted,
                     Measurements& measured, CheckReport& report)
    : checkpoint_(checkpoint),
      model_(model),
      baseline_(baseline),
      accepted_(accepted),
      measured_(measured),
      report_(report),
      blocks_(checkpoint, model) {
  if (!measured_.whole()) {
    for (const auto& linear : model_.modules) units_.push_back(UnitOfModule(linear->module()));
  }
  const auto measures = [&](size_t module) {
    return measured_.whole() || measured_.Measures(units_[module]);
  };
  for (size_t i = 0; i < model_.modules.size(); ++i) {
    if (measures(i)) AppendStripes(i, model_.modules[i]->n(), model_.modules[i]->k(), stripes_);
  }
  blocks_.KeepOnly(measures);
}

DataCheck::~DataCheck() = default;

MemoryNeed DataCheck::Need() const {
  constexpr uint64_t kOfStripe = sizeof(Stripe) + kMostCounts;
  // Results of a module's stripes live until all of them are there, which are those of a few
  // modules for each thread.
  MemoryNeed need{.shared = model_.modules.size() * sizeof(ModuleCheck) + MostStripes() * kOfStripe,
                  .per_thread = kPlainMemory + kOfStripe};
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

Status DataCheck::Run(unsigned threads, Progress& progress) {
  FindWeights();
  verdicts_.resize(model_.modules.size());
  energies_.resize(model_.modules.size());
  PREPACK_TRY(measured_.merged() ? TakeMeasurements() : MeasureStripes(threads, progress));
  if (measured_.is_part()) {
    KeepRest();
    return {};
  }
  for (const CheckVerdict verdict : verdicts_) {
    report_.verdict = std::max(report_.verdict, verdict);
  }
  ReportNoted();
  JudgeModel(report_.modules, report_.findings);
  PREPACK_TRY(JudgeHiddenChannels(checkpoint_, energies_, report_.modules));
  JudgeSiblings(report_.modules, energies_);
  ReportWiring();
  if (baseline_ != nullptr) ReportOutliers();
  return {};
}

Status DataCheck::MeasureStripes(unsigned threads, Progress& progress) {
  results_.resize(stripes_.size());
  unread_ = std::vector<std::atomic<size_t>>(model_.modules.size());
  for (const RowStripe& stripe : stripes_) ++unread_[stripe.matrix];
  uint64_t total = 0;
  for (const auto& linear : model_.modules) total += linear->source_bytes();
  progress.Begin("checking", measured_.ShareOf(total));
  std::vector<Buffers> buffers(threads);
  PREPACK_TRY(ParallelFor(stripes_.size(), threads, [&](size_t index, unsigned worker) {
    return CheckStripe(index, buffers[worker], progress);
  }));
  // What follows needs memory for every module, too.
  decltype(stripes_)().swap(stripes_);
  decltype(results_)().swap(results_);
  decltype(unread_)().swap(unread_);
  return {};
}

MeasuredThing DataCheck::ThingOf(std::string_view kind, size_t module) const {
  return {.kind = kind, .name = model_.modules[module]->module(), .unit = units_[module]};
}

// What the reader of a module met on another machine, and went on because it is accepted.
Status DataCheck::TakeNoted(size_t module, Finding finding) {
  const QuantizedLinear& linear = *model_.modules[module];
  for (const std::string_view name : linear.source_tensors()) {
    const StoredTensor* tensor = checkpoint_.Find(name);
    if (tensor == nullptr || checkpoint_.Where(*tensor) != finding.where) continue;
    PREPACK_TRY(accepted_.Accepts(finding.id, linear.module(), name).status());
  }
  accepted_.Note(linear.module(), std::move(finding));
  return {};
}

// What others have measured.
Status DataCheck::TakeMeasurements() {
  for (size_t i = 0; i < model_.modules.size(); ++i) {
    const MeasuredThing noted = ThingOf("noted", i);
    if (measured_.Has(noted)) {
      PREPACK_TRY_ASSIGN(std::vector<Finding> findings,
                         measured_.Taken<std::vector<Finding>>(noted));
      for (Finding& finding : findings) PREPACK_TRY(TakeNoted(i, std::move(finding)));
    }
    const MeasuredThing thing = ThingOf("module", i);
    PREPACK_TRY_ASSIGN(ModuleMeasurement module, measured_.Taken<ModuleMeasurement>(thing));
    const size_t energies = module.energies.size();
    if (energies != 0 && energies != model_.modules[i]->k()) {
      return Malformed(thing.name, "the report of its part has not one energy per input channel")
          .Found(fmt::format("{}", energies))
          .Expected(fmt::format("{}", model_.modules[i]->k()));
    }
    PREPACK_TRY(Report(i, std::move(module)));
  }
  return blocks_.Take(measured_);
}

// What is not of a single module's stripes.
void DataCheck::KeepRest() {
  blocks_.Keep(measured_);
  std::map<std::string, std::vector<Finding>, std::less<>> noted;
  for (auto& [module, finding] : accepted_.Noted()) noted[module].push_back(finding);
  for (size_t i = 0; i < model_.modules.size(); ++i) {
    const auto found = noted.find(model_.modules[i]->module());
    if (found == noted.end() || !measured_.Measures(units_[i])) continue;
    measured_.Keep(ThingOf("noted", i), MeasuredAs<std::vector<Finding>>::Write(found->second));
  }
}

void DataCheck::FindWeights() {
  if (baseline_ == nullptr) return;
  weights_.resize(model_.modules.size());
  for (size_t i = 0; i < weights_.size(); ++i) {
    weights_[i] = FindBaselineWeight(*baseline_,
                                     {.name = model_.modules[i]->module(),
                                      .n = model_.modules[i]->n(),
                                      .k = model_.modules[i]->k()},
                                     report_.modules[i].findings);
  }
}

// Of a module.
size_t DataCheck::MostStripes() const {
  size_t most = 0;
  for (size_t i = 0, first = 0; i < stripes_.size(); ++i) {
    if (stripes_[i].matrix != stripes_[first].matrix) first = i;
    most = std::max(most, i + 1 - first);
  }
  return most;
}

Status DataCheck::CheckStripe(size_t index, Buffers& buffers, Progress& progress) {
  const RowStripe& stripe = stripes_[index];
  const QuantizedLinear& linear = *model_.modules[stripe.matrix];
  results_[index] = std::make_unique<Stripe>();
  Stripe& result = *results_[index];
  progress.BeginItem(linear.module());
  if (stripe.n0 == 0) {
    PREPACK_TRY_ASSIGN(const uint64_t stray_bits, linear.CountStrayBits());
    result.statistics.stray_bits = stray_bits;
  }
  buffers.columns.Begin(linear.k());
  const uint64_t wide = RowsReadAtOnce(linear);
  for (uint64_t row = 0; row < stripe.rows; row += wide) {
    if (CancellationRequested()) return Interrupted(linear.module());
    Status status = MeasureStrip(stripe.matrix, stripe.n0 + row, std::min(wide, stripe.rows - row),
                                 buffers, result);
    if (!status.ok()) {
      if (!IsFinding(status)) return status;
      result.error = std::move(status);
      break;
    }
  }
  if (SpreadsRows(linear)) buffers.columns.End(result.statistics.windows);
  Status status = LookForText(stripe, linear, result);
  if (status.ok() && --unread_[stripe.matrix] == 0) {
    ModuleMeasurement module = Conclude(stripe.matrix);
    if (measured_.is_part()) {
      measured_.Keep(ThingOf("module", stripe.matrix),
                     MeasuredAs<ModuleMeasurement>::Write(module));
    }
    status = Report(stripe.matrix, std::move(module));
    if (status.ok()) status = blocks_.Done(stripe.matrix);
  }
  progress.Add(linear.source_bytes() * stripe.rows / linear.n());
  return status;
}

// Output channels that are read at once. They are judged panel by panel.
Status DataCheck::MeasureStrip(size_t module, uint64_t n0, uint64_t count, Buffers& buffers,
                               Stripe& result) const {
  const QuantizedLinear& linear = *model_.modules[module];
  PREPACK_TRY(ReadRows(linear, n0, count, buffers.numbers));
  const uint64_t panel = StripePanelRows(linear.k());
  for (uint64_t row = 0; row < count; row += panel) {
    const uint64_t rows = std::min(panel, count - row);
    const RowNumbers numbers = buffers.numbers.Rows(row, rows, count);
    MeasureRows(linear, n0 + row, rows, numbers, buffers.columns, result.statistics);
    // One panel is enough to compare siblings by.
    if (n0 + row == 0 && HasSiblings(linear.module())) {
      PREPACK_TRY(MeasureColumns(linear, rows, numbers, result.energies));
    }
    if (baseline_ == nullptr || !weights_[module]) continue;
    PREPACK_TRY(CompareWithBaseline(linear, *baseline_, *weights_[module], n0 + row, rows,
                                    result.baseline));
  }
  return {};
}

// Searches the stripe's share of the codes tensor, as stored.
Status DataCheck::LookForText(const RowStripe& stripe, const QuantizedLinear& linear,
                              Stripe& result) const {
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

void DataCheck::ReportWiring() {
  for (const WiredBlocks::Fault& fault : blocks_.Faults()) {
    ModuleCheck& check = report_.modules[fault.module];
    check.findings.push_back(fault.exchanged
                                 ? MakeFinding("modules-exchanged", check.module, fault.message)
                                 : MakeFinding("module-alien", check.module, fault.message));
  }
}

// Merges the stripes of a module in their order, and forgets them: there may be very many modules.
ModuleMeasurement DataCheck::Conclude(size_t module) {
  const std::string_view name = model_.modules[module]->module();
  ModuleMeasurement result;
  ModuleStatistics statistics;
  BaselineSums baseline;
  std::optional<TextRun> text;
  StoredBlocks blocks;
  auto stripe = std::ranges::lower_bound(stripes_, module, {}, &RowStripe::matrix);
  for (; stripe != stripes_.end() && stripe->matrix == module; ++stripe) {
    const std::unique_ptr<Stripe> taken =
        std::move(results_[static_cast<size_t>(stripe - stripes_.begin())]);
    statistics.Merge(taken->statistics);
    if (taken->text && !text) text = taken->text;
    blocks.Merge(taken->blocks);
    if (!taken->energies.empty()) result.energies = std::move(taken->energies);
    baseline.Merge(taken->baseline);
    if (result.error.ok()) result.error = std::move(taken->error);
  }
  if (text) {
    result.findings.push_back(
        MakeFinding("codes-damaged", name,
                    fmt::format("{} bytes of the codes, from byte {} on, are text: \"{}\"",
                                text->bytes, text->offset, text->beginning)));
  }
  if (const uint64_t repeated = blocks.Repeated(); repeated >= StoredBlocks::kMinRepeated) {
    result.findings.push_back(MakeFinding(
        "codes-damaged", name,
        fmt::format("{} bytes of the codes occur twice", repeated * StoredBlocks::kBytes)));
  }
  if (!result.error.ok()) return result;
  JudgeModule(*model_.modules[module], statistics, result.findings);
  statistics.windows.row_hashes = {};  // judged, and as many as rows
  result.statistics = std::move(statistics);
  if (baseline_ != nullptr && weights_[module]) result.sqnr_db = baseline.SqnrDb();
  return result;
}

Status DataCheck::Report(size_t module, ModuleMeasurement measurement) {
  ModuleCheck& check = report_.modules[module];
  if (!measurement.error.ok()) {
    Finding finding = FindingOf(measurement.error);
    PREPACK_TRY(accepted_.Mark(finding, check.module));
    if (!finding.accepted) {
      verdicts_[module] = measurement.error.kind() == ErrorKind::kUnsupported
                              ? CheckVerdict::kUnsupported
                              : CheckVerdict::kBadValues;
    }
    check.findings.push_back(std::move(finding));
  }
  std::ranges::move(measurement.findings, std::back_inserter(check.findings));
  if (measurement.statistics) {
    const std::lock_guard lock(histograms_mutex_);
    KeepStatistics(*measurement.statistics, check, report_.histograms);
  }
  check.sqnr_db = measurement.sqnr_db;
  energies_[module] = std::move(measurement.energies);
  return {};
}

// What the reader of a module met and went on, because it is accepted.
void DataCheck::ReportNoted() {
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

void DataCheck::ReportOutliers() {
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

}  // namespace prepack
