#include "prepack/verify/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "prepack/base/hash.h"
#include "prepack/base/parallel.h"
#include "prepack/convert/gguf/manifest.h"
#include "prepack/convert/gguf/sources.h"
#include "prepack/gguf/keys.h"
#include "prepack/gguf/model.h"
#include "prepack/packed/output_hash.h"
#include "prepack/packed/packed_model.h"
#include "prepack/packed/source_identity.h"
#include "prepack/verify/gguf_weights.h"

namespace prepack {
namespace {

Status CheckOptions(const VerifyOptions& options) {
  const auto refuse = [](std::string_view option) {
    return Usage(option, "this option is not for GGUF files");
  };
  if (options.baseline) return refuse("--baseline");
  if (options.activations) return refuse("--activations");
  if (options.sample) return refuse("--sample");
  if (!options.min_sqnr.empty()) return refuse("--min-sqnr");
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
        threads_(ThreadCount(options.jobs)) {}

  Result<VerifyReport> Run() {
    Begin();
    if (Runs(Level::kIntegrity)) PREPACK_TRY(CheckIntegrity());
    if (Runs(Level::kExactness)) PREPACK_TRY(CheckExactness());
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
      level(one).reason = fmt::format("skipped on request (--skip {})", LevelName(one));
    }
    level(Level::kGemm) = {.asked = false,
                           .reason = "prepack has no model of llama.cpp's products"};
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

  Status CheckExactness() {
    const std::optional<std::filesystem::path> path = SourcePath();
    if (!path) {
      level(Level::kExactness).reason =
          "this level needs the source checkpoint, which is not where the manifest says: give it "
          "with --source";
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
    PREPACK_TRY(CompareAll(truth));
    NoteLeftOut(sources, truth);
    return {};
  }

  Status CompareAll(const GgufTruth& truth) {
    struct Stripe {
      size_t tensor;
      uint64_t stripe;
    };
    LevelResult result{.state = LevelState::kPassed};
    std::vector<std::unique_ptr<GgufComparison>> comparisons;
    std::vector<const gguf::Tensor*> tensors;
    std::vector<Stripe> stripes;
    uint64_t bytes = 0;
    for (const auto& [name, record] : manifest_.tensors) {
      const gguf::Tensor* tensor = model_.FindTensor(name);
      if (record.rows.empty() || tensor == nullptr) continue;
      auto comparison = std::make_unique<GgufComparison>(model_, *tensor, record, truth);
      if (const Status status = comparison->Prepare(); !status.ok()) {
        result.FailModule(name, status.what());
        continue;
      }
      for (uint64_t i = 0; i < comparison->stripes(); ++i) {
        stripes.push_back({tensors.size(), i});
      }
      bytes += tensor->bytes;
      comparisons.push_back(std::move(comparison));
      tensors.push_back(tensor);
    }
    std::vector<WeightCounts> counts(stripes.size());
    progress_.Begin("comparing", bytes);
    PREPACK_TRY(ParallelFor(stripes.size(), threads_, [&](size_t i, unsigned) -> Status {
      if (CancellationRequested()) return Interrupted(model_.path().string());
      const GgufComparison& comparison = *comparisons[stripes[i].tensor];
      PREPACK_TRY_ASSIGN(counts[i], comparison.Compare(stripes[i].stripe));
      progress_.Add(comparison.stripe_bytes());
      return {};
    }));
    std::vector<WeightCounts> of_tensors(tensors.size());
    for (size_t i = 0; i < stripes.size(); ++i) {
      of_tensors[stripes[i].tensor].Add(std::move(counts[i]));
    }
    for (size_t i = 0; i < tensors.size(); ++i) Judge(tensors[i]->name, of_tensors[i], result);
    level(Level::kExactness) = std::move(result);
    SetModuleStates(Level::kExactness, level(Level::kExactness), nullptr, figures_);
    return {};
  }

  void Judge(const std::string& name, const WeightCounts& counts, LevelResult& result) {
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
  const unsigned threads_;
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
