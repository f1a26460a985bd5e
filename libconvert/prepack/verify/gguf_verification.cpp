#include "prepack/verify/gguf_verification.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <string_view>

#include "prepack/base/hash.h"
#include "prepack/base/parallel.h"
#include "prepack/container/json_fields.h"
#include "prepack/gguf/blocks.h"
#include "prepack/packed/output_hash.h"
#include "prepack/packed/packed_model.h"

namespace prepack {
namespace {

Json CountsJson(const WeightCounts& counts) {
  return {{"identical", counts.identical}, {"rounded", counts.rounded}};
}

WeightCounts ReadCounts(JsonFields fields) {
  WeightCounts counts;
  counts.identical = fields.Uint("identical");
  counts.rounded = fields.Uint("rounded");
  return counts;
}

Json SumsJson(const std::vector<FigureSums>& sums) {
  Json json = Json::array();
  for (const FigureSums& one : sums) json.push_back(one.Write());
  return json;
}

std::vector<FigureSums> ReadSums(JsonFields& fields, std::string_view key) {
  std::vector<FigureSums> sums;
  size_t index = 0;
  for (const Json& one : *fields.Array(key)) {
    sums.push_back(FigureSums::Read(fields.In(one, key, index++)));
  }
  return sums;
}

}  // namespace

void GgufFound::Add(GgufFound other) {
  exactness.Add(std::move(other.exactness));
  gemm.Add(std::move(other.gemm));
  sums.Merge(other.sums);
}

Json GgufFoundJson(const GgufFound& found) {
  return {
      {"exactness", CountsJson(found.exactness)}, {"gemm", CountsJson(found.gemm)},
      {"channels", found.sums.channels},          {"zeros", found.sums.zeros},
      {"kernel", SumsJson(found.sums.kernel)},    {"end_to_end", SumsJson(found.sums.end_to_end)}};
}

Result<GgufFound> ReadGgufFound(const std::string& json, const std::string& where) {
  PREPACK_TRY_ASSIGN(const Json parsed, ParseJsonStrict(json, where));
  Status status;
  JsonFields fields(parsed, where, status);
  GgufFound found;
  found.exactness = ReadCounts(fields.In("exactness"));
  found.gemm = ReadCounts(fields.In("gemm"));
  found.sums.channels = fields.Uint("channels");
  found.sums.zeros = fields.Bool("zeros");
  found.sums.kernel = ReadSums(fields, "kernel");
  found.sums.end_to_end = ReadSums(fields, "end_to_end");
  if (status.ok() && found.sums.kernel.size() != found.sums.end_to_end.size()) {
    status = Malformed(where, "\"kernel\" and \"end_to_end\" differ in length");
  }
  if (!status.ok()) return status;
  return found;
}

Status GgufVerification::Prepare() {
  Begin();
  PREPACK_TRY(ReadBars());
  PREPACK_TRY_ASSIGN(threads_,
                     ThreadsWithin(Need(), options_.jobs, options_.memory_limit, "verified"));
  return {};
}

bool GgufVerification::Runs(Level level) const {
  return std::ranges::count(options_.skip, level) == 0;
}

void GgufVerification::Begin() {
  report_.target = "gguf";
  for (const Level one : kLevels) {
    level(one).reason = SkippedOnRequest(one);
  }
  level(Level::kQuality) = {.asked = false, .reason = "not for GGUF files"};
  for (const auto& [name, tensor] : manifest_.tensors) {
    ModuleVerification& figure = figures_[name];
    figure.module = name;
    figure.layout = fmt::format("gguf/{}", gguf::InfoOf(tensor.type).name);
    const gguf::Tensor* stored = model_.FindTensor(name);
    if (stored == nullptr || stored->dims.empty()) continue;
    figure.k = stored->dims.front();
    figure.n = 1;
    for (size_t i = 1; i < stored->dims.size(); ++i) figure.n *= stored->dims[i];
  }
}

Status GgufVerification::ReadBars() {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : manifest_.tensors) names.push_back(name);
  PREPACK_TRY_ASSIGN(SqnrBars bars, SqnrBars::Make(options_.min_sqnr, names));
  bars_ = std::move(bars);
  return {};
}

// A stripe of the tensor that takes most, and the activations of the one that has most columns.
MemoryNeed GgufVerification::Need() const {
  MemoryNeed need;
  uint64_t inputs = 0;
  for (const gguf::Tensor& tensor : model_.tensors()) {
    if (tensor.dims.empty()) continue;
    uint64_t own = GgufRows::MemoryOfStripe(tensor.dims.front());
    if (GgufProducts::AreOf(tensor) && Runs(Level::kGemm)) {
      own += GgufProducts::Memory(tensor, options_.sampled_weights);
      inputs = std::max(inputs, GgufInputs::Bytes(GgufProducts::SlabInputs(tensor)));
    }
    need.per_thread = std::max(need.per_thread, own);
  }
  need.per_thread += inputs;  // threads may work on tensors of different shapes
  return need;
}

Status GgufVerification::CheckIntegrity() {
  LevelResult result{.state = LevelState::kPassed};
  for (const auto& [name, record] : manifest_.tensors) {
    if (model_.FindTensor(name) == nullptr) result.FailModule(name, "it is not in the file");
  }
  const std::vector<gguf::Tensor>& tensors = model_.tensors();
  std::vector<std::string> wrong(tensors.size());
  std::vector<PageBuffer> buffers(threads_);
  progress_.Begin("hashing", model_.total_bytes());
  PREPACK_TRY(ParallelFor(tensors.size(), threads_, [&](size_t i, unsigned worker) -> Status {
    const auto record = manifest_.tensors.find(tensors[i].name);
    if (record == manifest_.tensors.end()) {
      wrong[i] = "the manifest does not have it";
      return {};
    }
    if (record->second.type != tensors[i].type) wrong[i] = "it has another type than was written";
    const File& file = model_.files()[tensors[i].file].file;
    const FileRange range{file, tensors[i].offset, tensors[i].offset + tensors[i].bytes};
    PREPACK_TRY_ASSIGN(const Hash128 hash, HashRange(range, buffers[worker], progress_));
    if (hash != record->second.hash) wrong[i] = "it has other bytes than were written";
    return {};
  }));
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!wrong[i].empty()) result.FailModule(tensors[i].name, wrong[i]);
  }
  level(Level::kIntegrity) = std::move(result);
  SetModuleStates(Level::kIntegrity, level(Level::kIntegrity), nullptr, figures_);
  return {};
}

std::optional<std::filesystem::path> GgufVerification::SourcePath() {
  if (options_.source) return options_.source;
  if (manifest_.source.empty()) return std::nullopt;
  const std::filesystem::path found = model_.path().parent_path() / manifest_.source;
  std::error_code error;
  if (!std::filesystem::exists(found, error)) return std::nullopt;
  report_.source_found = true;
  return found;
}

Status GgufVerification::OpenSource() {
  if (!Runs(Level::kExactness) && !Runs(Level::kGemm)) return {};
  const std::optional<std::filesystem::path> path = SourcePath();
  if (!path) {
    for (const Level one : {Level::kExactness, Level::kGemm}) {
      if (!Runs(one)) continue;
      level(one).reason = kNeedsSource;
    }
    return {};
  }
  report_.source = path->string();
  PREPACK_TRY_ASSIGN(Checkpoint checkpoint, Checkpoint::Open(*path));
  auto source = std::make_unique<Source>(std::move(checkpoint));
  PREPACK_TRY_ASSIGN(source->model, ReadSourceModel(source->checkpoint));
  PREPACK_TRY_ASSIGN(source->sources, gguf::FindSources(source->checkpoint, source->model));
  PREPACK_TRY_ASSIGN(const SecondDecoder decoder,
                     SecondDecoder::Make(source->checkpoint, manifest_.source_format));
  source->decoder.emplace(decoder);
  source->truth.emplace(
      GgufTruth{.source = source->checkpoint, .decoder = *source->decoder, .sources = {}});
  std::map<std::string_view, const gguf::Source*> by_name;
  for (const gguf::Source& one : source->sources.sources) by_name.emplace(one.name, &one);
  for (const std::string& name : manifest_.sources) {
    const auto it = by_name.find(name);
    source->truth->sources.push_back(it == by_name.end() ? nullptr : it->second);
  }
  for (const Level one : {Level::kExactness, Level::kGemm}) {
    if (Runs(one)) level(one) = {.state = LevelState::kPassed};
  }
  source_ = std::move(source);
  return {};
}

Status GgufVerification::ReopenSource(size_t file) {
  return source_ == nullptr ? Status() : source_->checkpoint.Reopen(file);
}

// Null for a tensor without rows. One that the rest of the file does not fit is not compared.
GgufVerification::Compared* GgufVerification::Find(const std::string& name) {
  if (const auto known = compared_.find(name); known != compared_.end()) return &known->second;
  const auto record = manifest_.tensors.find(name);
  const gguf::Tensor* tensor = model_.FindTensor(name);
  if (record == manifest_.tensors.end() || record->second.rows.empty() || tensor == nullptr) {
    return nullptr;
  }
  Compared& one = compared_[name];
  one.rows = std::make_unique<GgufRows>(model_, *tensor, record->second, *source_->truth);
  one.unusable = one.rows->Prepare();
  if (one.unusable.ok() && Runs(Level::kGemm) && GgufProducts::AreOf(*tensor)) {
    one.products.emplace(*one.rows, options_.sampled_weights, inputs_);
  }
  return &one;
}

// Stripes are done in any order, and counted in theirs, so that figures do not depend on the
// threads. What was found of one waits only for those before it.
Result<std::vector<GgufFound>> GgufVerification::Compare(std::span<const GgufRange> ranges) {
  std::vector<Stripe> stripes;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const Compared* tensor = Find(ranges[i].tensor);
    if (tensor == nullptr || !tensor->unusable.ok()) continue;
    const uint64_t at_once = tensor->rows->stripe_rows();
    for (uint64_t row = 0; row < ranges[i].rows; row += at_once) {
      stripes.push_back({.tensor = tensor,
                         .range = i,
                         .first = ranges[i].first + row,
                         .rows = std::min(at_once, ranges[i].rows - row)});
    }
  }
  std::vector<GgufFound> found(ranges.size());
  std::vector<Scratch> scratch(threads_);
  std::mutex mutex;
  std::map<uint64_t, GgufFound> waiting;
  uint64_t next = 0;
  PREPACK_TRY(ParallelFor(stripes.size(), threads_, [&](size_t i, unsigned worker) -> Status {
    if (CancellationRequested()) return Interrupted(model_.path().string());
    GgufFound of_stripe;
    PREPACK_TRY(CompareStripe(stripes[i], scratch[worker], of_stripe));
    progress_.Add(scratch[worker].stripe.bytes.size());
    const std::lock_guard lock(mutex);
    waiting.emplace(i, std::move(of_stripe));
    for (auto first = waiting.begin(); first != waiting.end() && first->first == next;
         first = waiting.erase(first), ++next) {
      found[stripes[next].range].Add(std::move(first->second));
    }
    return {};
  }));
  return found;
}

Status GgufVerification::CompareStripe(const Stripe& stripe, Scratch& scratch,
                                       GgufFound& found) const {
  const GgufRows& rows = *stripe.tensor->rows;
  PREPACK_TRY(rows.Read(stripe.first, stripe.rows, scratch.stripe));
  const GgufStripe& read = scratch.stripe;
  if (Runs(Level::kExactness)) {
    scratch.row.resize(rows.columns());
    for (uint64_t row = 0; row < read.rows; ++row) {
      gguf::Dequantize(rows.tensor().type,
                       std::span(read.bytes).subspan(row * rows.row_bytes(), rows.row_bytes()),
                       scratch.row);
      rows.Compare(read, read.first + row, scratch.row, found.exactness);
    }
  }
  if (stripe.tensor->products) {
    stripe.tensor->products->Add(read, scratch.products, found.gemm, found.sums);
  }
  return {};
}

void GgufVerification::Count(const GgufRange& range, GgufFound found) {
  Compared* tensor = Find(range.tensor);
  if (tensor != nullptr) tensor->found.Add(std::move(found));
}

Status GgufVerification::CompareAll() {
  std::vector<GgufRange> ranges;
  uint64_t bytes = 0;
  for (const auto& [name, record] : manifest_.tensors) {
    const Compared* tensor = Find(name);
    if (tensor == nullptr) continue;
    bytes += tensor->rows->tensor().bytes;
    ranges.push_back({.tensor = name, .rows = tensor->rows->rows()});
  }
  progress_.Begin("comparing", bytes);
  PREPACK_TRY_ASSIGN(std::vector<GgufFound> found, Compare(ranges));
  for (size_t i = 0; i < ranges.size(); ++i) Count(ranges[i], std::move(found[i]));
  return {};
}

std::optional<Problem> GgufVerification::ProblemOf(const std::string& tensor) const {
  const auto known = compared_.find(tensor);
  if (known == compared_.end()) return std::nullopt;
  const Compared& one = known->second;
  if (!one.unusable.ok())
    return Problem{.module = tensor, .where = tensor, .message = one.unusable.what()};
  for (const WeightCounts* counts : {&one.found.exactness, &one.found.gemm}) {
    if (counts->wrong == 0) continue;
    return Problem{.module = tensor,
                   .where = tensor,
                   .message = fmt::format("{} weights are not those of the source: {}",
                                          counts->wrong, counts->first_wrong)};
  }
  if (!one.products || one.found.sums.channels == 0) return std::nullopt;
  ModuleVerification module;
  module.module = tensor;
  LevelResult result{.state = LevelState::kPassed};
  JudgeSums(tensor, one, module, result);
  return result.problems.empty() ? std::nullopt : std::optional(result.problems.front());
}

Result<VerifyReport> GgufVerification::Finish() {
  report_.folder = options_.folder.string();
  if (Runs(Level::kIntegrity)) PREPACK_TRY(CheckIntegrity());
  for (const auto& [name, tensor] : compared_) Judge(name, tensor);
  if (has_source()) {
    if (Runs(Level::kExactness)) {
      NoteLeftOut();
      SetModuleStates(Level::kExactness, level(Level::kExactness), nullptr, figures_);
    }
    if (Runs(Level::kGemm)) ConcludeProducts();
  }
  for (auto& [name, figure] : figures_) report_.modules.push_back(std::move(figure));
  return std::move(report_);
}

void GgufVerification::Judge(const std::string& name, const Compared& tensor) {
  if (!tensor.unusable.ok()) {
    for (const Level one : {Level::kExactness, Level::kGemm}) {
      if (Runs(one)) level(one).FailModule(name, tensor.unusable.what());
    }
    figures_[name].state(Level::kGemm) = level(Level::kGemm).state;
    return;
  }
  const GgufFound& found = tensor.found;
  if (Runs(Level::kExactness)) JudgeWeights(name, found.exactness, level(Level::kExactness));
  if (!tensor.products) return;
  ModuleVerification& module = figures_[name];
  LevelResult& result = level(Level::kGemm);
  JudgeSums(name, tensor, module, result);
  if (found.gemm.wrong == 0) return;
  module.state(Level::kGemm) = LevelState::kFailed;
  result.FailModule(name, fmt::format("the product reads {} weights that are not those of the "
                                      "source: {}",
                                      found.gemm.wrong, found.gemm.first_wrong));
}

void GgufVerification::JudgeSums(const std::string& name, const Compared& tensor,
                                 ModuleVerification& module, LevelResult& result) const {
  module.gemm = tensor.products->Figures(tensor.found.sums);
  ModuleBars bars = tensor.products->Bars();
  bars.end_to_end_db = bars_->Of(name).value_or(bars.end_to_end_db);
  JudgeProducts(bars, module, result);
}

void GgufVerification::ConcludeProducts() {
  report_.engine = EngineChoiceName(EngineChoice::kReference);
  std::vector<const ModuleVerification*> judged;
  for (const auto& [name, module] : figures_) {
    if (module.gemm) judged.push_back(&module);
  }
  LevelResult& result = level(Level::kGemm);
  Conclude(judged, Level::kGemm, "the result of some products proves nothing", result);
  if (judged.empty() && result.state != LevelState::kFailed) {
    result.reason = "the file has no matrix with rows of the source";
  }
}

void GgufVerification::JudgeWeights(const std::string& name, const WeightCounts& counts,
                                    LevelResult& result) {
  // Of what is rounded as it must be, neither yes nor no says enough: the note does.
  if (counts.wrong != 0 || counts.rounded == 0) figures_[name].exact = counts.wrong == 0;
  if (counts.wrong != 0) {
    result.FailModule(name, fmt::format("{} weights are not those of the source: {}", counts.wrong,
                                        counts.first_wrong));
  } else if (counts.rounded != 0) {
    const gguf::ManifestTensor& record = manifest_.tensors.at(name);
    result.notes.push_back(
        {.module = name,
         .where = name,
         .message = fmt::format("{} of {} weights are {} to what {} holds", counts.rounded,
                                counts.rounded + counts.identical,
                                record.rounded.quantized != 0 ? "quantized" : "rounded",
                                gguf::InfoOf(record.type).name)});
  }
}

// Weights that the converter has no use for, or has computed with.
void GgufVerification::NoteLeftOut() {
  const GgufTruth& truth = *source_->truth;
  std::map<const gguf::Source*, uint64_t> rows;
  for (const auto& [name, record] : manifest_.tensors) {
    for (const gguf::RowPiece& piece : record.rows) {
      rows[truth.sources[piece.source]] += piece.rows();
    }
  }
  for (const gguf::Source& source : source_->sources.sources) {
    if (source.modules.empty() || rows[&source] >= source.rows()) continue;
    level(Level::kExactness)
        .notes.push_back({.module = "",
                          .where = source.name,
                          .message = fmt::format("{} of its {} rows are compared with nothing: "
                                                 "the file does not hold them as they are",
                                                 source.rows() - rows[&source], source.rows())});
  }
}

}  // namespace prepack
