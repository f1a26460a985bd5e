// What headers and configuration say, and the verdict.

#include "prepack/check/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

#include "prepack/base/parallel.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/check/data_check.h"
#include "prepack/check/gguf_check.h"
#include "prepack/check/model_checks.h"
#include "prepack/check/plain_statistics.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "prepack/gguf/model.h"
#include "prepack/io/memory_limit.h"
#include "prepack/kernels/memory.h"
#include "prepack/measure/baseline.h"
#include "prepack/model/panel.h"
#include "prepack/model/panel_shape.h"

namespace prepack {
namespace {

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

// Modules, and the tensors that belong to none.
void CutIntoParts(const Checkpoint& checkpoint, const QuantizedModel& model,
                  Measurements& measured) {
  if (measured.whole()) return;
  std::vector<std::pair<std::string, uint64_t>> units;
  const std::vector<bool> quantized = TensorsInModules(checkpoint, model);
  for (const auto& linear : model.modules) {
    units.emplace_back(UnitOfModule(linear->module()), linear->source_bytes());
  }
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    if (quantized[NumberOf(checkpoint, tensor)]) continue;
    units.emplace_back(UnitOfTensor(tensor.name), tensor.bytes);
  }
  measured.Cut(units);
}

// What needs little data and no cutting: one part looks, and headers alone tell what they can.
// `look` says whether to read data, and appends to the findings.
template <typename Look>
Status CheckInOnePart(const CheckOptions& options, const MeasuredThing& thing, const Look& look,
                      Measurements& measured, CheckReport& report) {
  if (options.headers_only) return look(false, report.findings);
  const auto with_data = [&]() -> Result<std::vector<Finding>> {
    std::vector<Finding> findings;
    PREPACK_TRY(look(true, findings));
    return findings;
  };
  PREPACK_TRY_ASSIGN(std::vector<Finding> findings,
                     measured.Of<std::vector<Finding>>(thing, with_data));
  std::ranges::move(findings, std::back_inserter(report.findings));
  return {};
}

// What is checked, and what a report has its names of.
struct Opened {
  Checkpoint checkpoint;
  QuantizedModel model = {};
};

Status CheckOpened(const CheckOptions& options, const Checkpoint* baseline, Opened& opened,
                   Measurements& measured, Progress& progress, CheckReport& report) {
  const Checkpoint& checkpoint = opened.checkpoint;
  report.tensors = checkpoint.tensors().size();
  report.tensor_bytes = checkpoint.total_bytes();
  Result<QuantizedModel> read = ExamineQuantizedModel(checkpoint, options.accepted);
  if (!read.ok()) {
    if (!IsFinding(read.status())) return read.status();
    NoteUnreadable(read.status(), report);
    return {};
  }
  QuantizedModel* const model = &opened.model;
  *model = *std::move(read);
  report.format = model->format;
  report.modules.reserve(model->modules.size());
  for (const auto& linear : model->modules) {
    report.modules.push_back({.module = linear->module(),
                              .scheme = linear->scheme(),
                              .n = linear->n(),
                              .k = linear->k(),
                              .findings = {},
                              .figures = {},
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
  CutIntoParts(checkpoint, *model, measured);
  PREPACK_TRY(CheckInOnePart(
      options, {.kind = "caches", .name = "scales", .unit = "scales of caches"},
      [&](bool read_data, std::vector<Finding>& findings) {
        return CheckCacheScales(checkpoint, read_data, findings);
      },
      measured, report));
  // Two tensors that are compared to the end if they are equal.
  Status status = CheckInOnePart(
      options, {.kind = "tied", .name = "weights", .unit = "tied weights"},
      [&](bool read_data, std::vector<Finding>& findings) {
        return CheckTiedWeights(checkpoint, *model, read_data, findings);
      },
      measured, report);
  if (!status.ok() || options.headers_only) return status;
  DataCheck data(checkpoint, *model, baseline, options.accepted, measured, report);
  PREPACK_TRY_ASSIGN(const unsigned threads,
                     ThreadsWithin(data.Need(), options.jobs, options.memory_limit, "checked"));
  status = data.Run(threads, progress);
  if (!status.ok()) return status;
  if (baseline != nullptr) {
    status = CompareOtherTensors(checkpoint, *model, *baseline, measured, threads, progress,
                                 report.findings);
  }
  if (!status.ok()) return status;
  return CheckPlainValues(checkpoint, *model, measured, threads, progress, report.findings);
}

// A thread of it allocates next to nothing: it reads mapped blocks.
Status CheckOpenedGguf(const CheckOptions& options, const gguf::Model& model, Progress& progress,
                       CheckReport& report) {
  report.format = "gguf";
  report.tensors = model.tensors().size();
  report.tensor_bytes = model.total_bytes();
  CheckGgufMetadata(model, report.findings);
  PREPACK_TRY(MarkAll(options.accepted, "", report.findings));
  if (Has(report.findings, Severity::kError)) Raise(report.verdict, CheckVerdict::kMalformed);
  if (options.headers_only) return {};
  return CheckGgufValues(model, ThreadCount(options.jobs), progress, report.findings);
}

Status CheckGguf(const CheckOptions& options, Progress& progress, CheckReport& report) {
  if (options.baseline) {
    return Usage("--baseline", "a GGUF model cannot be compared with a baseline")
        .Hint("Check the checkpoint that it was made from");
  }
  const Result<gguf::Model> model = gguf::Model::Open(options.source);
  if (model.ok()) return CheckOpenedGguf(options, *model, progress, report);
  if (!IsFinding(model.status())) return model.status();
  NoteUnreadable(model.status(), report);
  return {};
}

Status CheckCheckpoint(const CheckOptions& options, const Checkpoint* baseline,
                       Measurements& measured, Progress& progress, CheckReport& report) {
  Result<Checkpoint> checkpoint = Checkpoint::Open(options.source);
  if (checkpoint.ok()) {
    const auto opened = std::make_shared<Opened>(Opened{.checkpoint = *std::move(checkpoint)});
    report.held = opened;
    return CheckOpened(options, baseline, *opened, measured, progress, report);
  }
  if (!IsFinding(checkpoint.status())) return checkpoint.status();
  NoteUnreadable(checkpoint.status(), report);
  return {};
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
  Measurements measured;
  return CheckWith(options, measured, progress);
}

Result<CheckReport> CheckWith(const CheckOptions& options, Measurements& measured,
                              Progress& progress) {
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
  if (gguf::IsGguf(options.source)) {
    PREPACK_TRY(CheckGguf(options, progress, report));
  } else {
    PREPACK_TRY(
        CheckCheckpoint(options, baseline ? &*baseline : nullptr, measured, progress, report));
  }
  if (!report.format.empty()) PREPACK_TRY(MarkAccepted(options, report));
  SortBySeverity(report.findings);
  const std::vector<Finding> all = report.AllFindings();
  if (Has(all, Severity::kError)) Raise(report.verdict, CheckVerdict::kBadValues);
  if (Has(all, Severity::kWarning)) Raise(report.verdict, CheckVerdict::kWarnings);
  return report;
}

void KeepStatistics(const ModuleStatistics& statistics, ModuleCheck& module,
                    std::map<std::string, SchemeHistograms>& histograms) {
  module.figures = FiguresOf(statistics, module.scheme);
  if (module.scheme->code == CodeType::kBF16) return;
  SchemeHistograms& same = histograms[DescribeScheme(module.scheme)];
  same.scheme = module.scheme;
  ++same.modules;
  same.codes.Merge(statistics.histogram);
  same.scale_exponents.Merge(statistics.scale_exponents);
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

uint64_t RowsReadAtOnce(const QuantizedLinear& linear) {
  constexpr uint64_t kMostWeights = uint64_t{1} << 21;
  const uint64_t inputs = std::max<uint64_t>(linear.k(), 1);
  const uint64_t panel = StripePanelRows(inputs);
  const uint64_t wide = linear.reordered() ? kReorderRows : linear.wide_rows();
  const uint64_t most = std::min<uint64_t>(wide, kMostWeights / inputs);
  // Whole lines of the cache, at 4 bits, if they are so many.
  const uint64_t unit = std::lcm(panel, uint64_t{2 * kLineBytes});
  return std::max(panel, most >= unit ? most / unit * unit : most / panel * panel);
}

uint64_t MemoryOfCheck(const QuantizedLinear& linear, bool with_baseline) {
  const uint64_t k = linear.k();
  const uint64_t rows = std::min(RowsReadAtOnce(linear), linear.n());
  // Energies, in k_order and in the checkpoint's order; scales, zero points and sums of a row.
  uint64_t bytes = MemoryOfRows(linear, rows) + k * (4 * sizeof(float) + 1);
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
