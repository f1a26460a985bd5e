#include "prepack/verify/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "prepack/base/hash.h"
#include "prepack/base/parallel.h"
#include "prepack/convert/gguf/manifest.h"
#include "prepack/convert/gguf/sources.h"
#include "prepack/gguf/blocks.h"
#include "prepack/gguf/keys.h"
#include "prepack/gguf/model.h"
#include "prepack/io/memory_limit.h"
#include "prepack/packed/output_hash.h"
#include "prepack/packed/packed_model.h"
#include "prepack/packed/source_identity.h"
#include "prepack/verify/gguf_products.h"
#include "prepack/verify/gguf_weights.h"
#include "prepack/verify/judgement.h"

namespace prepack {
namespace {

Status CheckOptions(const VerifyOptions& options) {
  const auto refuse = [](std::string_view option) {
    return Usage(option, "this option is not for GGUF files");
  };
  if (options.baseline) return refuse("--baseline");
  if (options.activations) return refuse("--activations");
  if (options.sample) return refuse("--sample");
  if (options.engine == EngineChoice::kOneDnn) return refuse("--engine onednn");
  return {};
}

Result<std::string> ManifestHash(const gguf::Model& model) {
  constexpr uint64_t kDigits = 32;
  const gguf::Value* value = model.FindValue(gguf::kManifestHash);
  if (value == nullptr || value->type != gguf::ValueType::kString || value->count != kDigits) {
    return Unsupported(model.path().string(), "prepack has not made this file")
        .Expected(fmt::format("the key {} in its metadata", gguf::kManifestHash))
        .Hint("`prepack check` judges files from elsewhere");
  }
  return model.ReadText(*value, kDigits);
}

class GgufVerification {
 public:
  GgufVerification(const VerifyOptions& options, const gguf::Model& model,
                   const gguf::Manifest& manifest, Progress& progress)
      : options_(options),
        model_(model),
        manifest_(manifest),
        progress_(progress),
        inputs_(options.memory_limit == 0 ? GgufInputs::kMostKept : 0) {}

  Result<VerifyReport> Run() {
    Begin();
    PREPACK_TRY(ReadBars());
    PREPACK_TRY_ASSIGN(threads_,
                       ThreadsWithin(Need(), options_.jobs, options_.memory_limit, "verified"));
    if (Runs(Level::kIntegrity)) PREPACK_TRY(CheckIntegrity());
    if (Runs(Level::kExactness) || Runs(Level::kGemm)) PREPACK_TRY(CheckWeights());
    for (auto& [name, figure] : figures_) report_.modules.push_back(std::move(figure));
    return std::move(report_);
  }

 private:
  LevelResult& level(Level level) { return report_.level(level); }

  bool Runs(Level level) const { return std::ranges::count(options_.skip, level) == 0; }

  void Begin() {
    report_.folder = options_.folder.string();
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

  Status ReadBars() {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : manifest_.tensors) names.push_back(name);
    PREPACK_TRY_ASSIGN(SqnrBars bars, SqnrBars::Make(options_.min_sqnr, names));
    bars_ = std::move(bars);
    return {};
  }

  // A stripe of the tensor that takes most, and the activations of the one that has most columns.
  MemoryNeed Need() const {
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

  Status CheckIntegrity() {
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

  std::optional<std::filesystem::path> SourcePath() {
    if (options_.source) return options_.source;
    if (manifest_.source.empty()) return std::nullopt;
    const std::filesystem::path found = model_.path().parent_path() / manifest_.source;
    std::error_code error;
    if (!std::filesystem::exists(found, error)) return std::nullopt;
    report_.source_found = true;
    return found;
  }

  Status CheckWeights() {
    const std::optional<std::filesystem::path> path = SourcePath();
    if (!path) {
      for (const Level one : {Level::kExactness, Level::kGemm}) {
        if (!Runs(one)) continue;
        level(one).reason = kNeedsSource;
      }
      return {};
    }
    report_.source = path->string();
    PREPACK_TRY_ASSIGN(const Checkpoint source, Checkpoint::Open(*path));
    PREPACK_TRY_ASSIGN(const QuantizedModel model, ReadSourceModel(source));
    PREPACK_TRY_ASSIGN(const gguf::Sources sources, gguf::FindSources(source, model));
    PREPACK_TRY_ASSIGN(const SecondDecoder decoder,
                       SecondDecoder::Make(source, manifest_.source_format));
    GgufTruth truth{.source = source, .decoder = decoder, .sources = {}};
    std::map<std::string_view, const gguf::Source*> by_name;
    for (const gguf::Source& one : sources.sources) by_name.emplace(one.name, &one);
    for (const std::string& name : manifest_.sources) {
      const auto it = by_name.find(name);
      truth.sources.push_back(it == by_name.end() ? nullptr : it->second);
    }
    for (const Level one : {Level::kExactness, Level::kGemm}) {
      if (Runs(one)) level(one) = {.state = LevelState::kPassed};
    }
    std::vector<Compared> tensors = FindTensors(truth);
    PREPACK_TRY(CompareAll(tensors));
    if (Runs(Level::kExactness)) {
      NoteLeftOut(sources, truth);
      SetModuleStates(Level::kExactness, level(Level::kExactness), nullptr, figures_);
    }
    if (Runs(Level::kGemm)) ConcludeProducts();
    return {};
  }

  // A tensor that holds rows of the source.
  struct Compared {
    std::unique_ptr<GgufRows> rows;
    std::optional<GgufProducts> products;  // none: it is not multiplied
  };

  std::vector<Compared> FindTensors(const GgufTruth& truth) {
    std::vector<Compared> tensors;
    for (const auto& [name, record] : manifest_.tensors) {
      const gguf::Tensor* tensor = model_.FindTensor(name);
      if (record.rows.empty() || tensor == nullptr) continue;
      auto rows = std::make_unique<GgufRows>(model_, *tensor, record, truth);
      if (const Status status = rows->Prepare(); !status.ok()) {
        for (const Level one : {Level::kExactness, Level::kGemm}) {
          if (Runs(one)) level(one).FailModule(name, status.what());
        }
        figures_[name].state(Level::kGemm) = level(Level::kGemm).state;
        continue;
      }
      Compared& one = tensors.emplace_back(Compared{.rows = std::move(rows), .products = {}});
      if (Runs(Level::kGemm) && GgufProducts::AreOf(*tensor)) {
        one.products.emplace(*one.rows, options_.sampled_weights, inputs_);
      }
    }
    return tensors;
  }

  // What was found in a stripe.
  struct Found {
    WeightCounts exactness;  // by the reader's decoder
    WeightCounts gemm;       // by the model of the product
    GgufSums sums;

    void Add(Found other) {
      exactness.Add(std::move(other.exactness));
      gemm.Add(std::move(other.gemm));
      sums.Merge(other.sums);
    }
  };
  struct Scratch {
    GgufStripe stripe;
    std::vector<float> row;
    GgufScratch products;
  };

  // Stripes are done in any order, and judged in theirs, so that figures do not depend on the
  // threads. What was found of one waits only for those before it.
  Status CompareAll(const std::vector<Compared>& tensors) {
    std::vector<uint64_t> ends;  // of the stripes of each tensor, of all
    uint64_t stripes = 0;
    uint64_t bytes = 0;
    for (const Compared& tensor : tensors) {
      ends.push_back(stripes += tensor.rows->stripes());
      bytes += tensor.rows->tensor().bytes;
    }
    std::vector<Scratch> scratch(threads_);
    std::mutex mutex;
    std::map<uint64_t, Found> waiting;
    uint64_t next = 0;
    size_t judged = 0;  // tensors
    Found of_tensor;
    progress_.Begin("comparing", bytes);
    return ParallelFor(stripes, threads_, [&](size_t i, unsigned worker) -> Status {
      if (CancellationRequested()) return Interrupted(model_.path().string());
      const auto tensor = static_cast<size_t>(std::ranges::upper_bound(ends, i) - ends.begin());
      const uint64_t index = i - (tensor == 0 ? 0 : ends[tensor - 1]);
      Found found;
      PREPACK_TRY(CompareStripe(tensors[tensor], index, scratch[worker], found));
      progress_.Add(scratch[worker].stripe.bytes.size());
      const std::lock_guard lock(mutex);
      waiting.emplace(i, std::move(found));
      for (auto first = waiting.begin(); first != waiting.end() && first->first == next;
           first = waiting.erase(first)) {
        of_tensor.Add(std::move(first->second));
        if (++next == ends[judged]) Judge(tensors[judged++], std::exchange(of_tensor, {}));
      }
      return {};
    });
  }

  Status CompareStripe(const Compared& tensor, uint64_t index, Scratch& scratch,
                       Found& found) const {
    const GgufRows& rows = *tensor.rows;
    PREPACK_TRY(rows.Read(index, scratch.stripe));
    const GgufStripe& stripe = scratch.stripe;
    if (Runs(Level::kExactness)) {
      scratch.row.resize(rows.columns());
      for (uint64_t row = 0; row < stripe.rows; ++row) {
        gguf::Dequantize(rows.tensor().type,
                         std::span(stripe.bytes).subspan(row * rows.row_bytes(), rows.row_bytes()),
                         scratch.row);
        rows.Compare(stripe, stripe.first + row, scratch.row, found.exactness);
      }
    }
    if (tensor.products) tensor.products->Add(stripe, scratch.products, found.gemm, found.sums);
    return {};
  }

  void Judge(const Compared& tensor, const Found& found) {
    const std::string& name = tensor.rows->tensor().name;
    if (Runs(Level::kExactness)) JudgeWeights(name, found.exactness, level(Level::kExactness));
    if (!tensor.products) return;
    ModuleVerification& module = figures_[name];
    LevelResult& result = level(Level::kGemm);
    module.gemm = tensor.products->Figures(found.sums);
    ModuleBars bars = tensor.products->Bars();
    bars.end_to_end_db = bars_->Of(name).value_or(bars.end_to_end_db);
    JudgeProducts(bars, module, result);
    if (found.gemm.wrong == 0) return;
    module.state(Level::kGemm) = LevelState::kFailed;
    result.FailModule(name, fmt::format("the product reads {} weights that are not those of the "
                                        "source: {}",
                                        found.gemm.wrong, found.gemm.first_wrong));
  }

  void ConcludeProducts() {
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

  void JudgeWeights(const std::string& name, const WeightCounts& counts, LevelResult& result) {
    // Of what is rounded as it must be, neither yes nor no says enough: the note does.
    if (counts.wrong != 0 || counts.rounded == 0) figures_[name].exact = counts.wrong == 0;
    if (counts.wrong != 0) {
      result.FailModule(name, fmt::format("{} weights are not those of the source: {}",
                                          counts.wrong, counts.first_wrong));
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
  void NoteLeftOut(const gguf::Sources& sources, const GgufTruth& truth) {
    const std::set<const gguf::Source*> used(truth.sources.begin(), truth.sources.end());
    std::map<const gguf::Source*, uint64_t> rows;
    for (const auto& [name, record] : manifest_.tensors) {
      for (const gguf::RowPiece& piece : record.rows) {
        rows[truth.sources[piece.source]] += piece.rows();
      }
    }
    for (const gguf::Source& source : sources.sources) {
      if (source.modules.empty() || rows[&source] >= source.rows()) continue;
      level(Level::kExactness)
          .notes.push_back({.module = "",
                            .where = source.name,
                            .message = fmt::format("{} of its {} rows are compared with nothing: "
                                                   "the file does not hold them as they are",
                                                   source.rows() - rows[&source], source.rows())});
    }
  }

  const VerifyOptions& options_;
  const gguf::Model& model_;
  const gguf::Manifest& manifest_;
  Progress& progress_;
  unsigned threads_ = 1;
  std::optional<SqnrBars> bars_;
  GgufInputCache inputs_;
  VerifyReport report_;
  ModuleFigures figures_;
};

}  // namespace

Result<VerifyReport> VerifyGguf(const VerifyOptions& options, Progress& progress) {
  PREPACK_TRY(CheckOptions(options));
  PREPACK_TRY_ASSIGN(const gguf::Model model, gguf::Model::Open(options.folder));
  PREPACK_TRY_ASSIGN(const std::string hash, ManifestHash(model));
  PREPACK_TRY_ASSIGN(const gguf::Manifest manifest,
                     gguf::ReadManifest(gguf::ManifestOf(options.folder), hash));
  return GgufVerification(options, model, manifest, progress).Run();
}

}  // namespace prepack
