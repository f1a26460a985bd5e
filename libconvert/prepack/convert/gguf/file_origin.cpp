#include "prepack/convert/gguf/file_origin.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/convert/gguf/block_linear.h"
#include "prepack/convert/gguf/converter_names.h"
#include "prepack/convert/gguf/restored_values.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/format.h"
#include "prepack/gguf/blocks.h"
#include "prepack/gguf/keys.h"
#include "prepack/io/scratch_folder.h"

namespace prepack::gguf {
namespace {

constexpr std::string_view kOfWeights = ".weight";
constexpr std::string_view kDeclaration = R"({"quant_method": "gguf"})";

bool IsFloats(GgmlType type) {
  return IsDecoded(type) && !HasCodes(type);
}

DType FloatOf(GgmlType type) {
  if (type == GgmlType::kBF16) return DType::kBF16;
  return type == GgmlType::kF16 ? DType::kF16 : DType::kF32;
}

// Rows of these are looked up, and never multiplied with.
bool IsEmbedding(const Restored& restored) {
  return std::ranges::any_of(restored.pieces, [](const RestoredPiece& piece) {
    const std::string& name = piece.tensor->name;
    return name.find("_embd.") != std::string::npos || name.starts_with("token_types");
  });
}

// Do the rows lie in the file as the checkpoint has them, side by side?
bool LiesAsItIs(const Restored& restored) {
  if (restored.pieces.size() != 1) return false;
  const RestoredPiece& only = restored.pieces.front();
  const auto& loops = only.piece.loops;
  const bool in_order =
      loops.empty() || (loops.size() == 1 && (loops[0].step == 1 || loops[0].count == 1));
  return only.piece.first == 0 && in_order && only.plus == 0;
}

}  // namespace

// Builds the checkpoint.
class SourceOpener {
 public:
  SourceOpener(const GgufSource& options, std::shared_ptr<FileOrigin> origin)
      : options_(options), origin_(std::move(origin)), model_(origin_->model_) {}

  Result<Checkpoint> Open(const std::filesystem::path& path, const Checkpoint* like) {
    PREPACK_TRY_ASSIGN(origin_->restored_, Restore(model_, origin_->manifest_));
    PREPACK_TRY(OpenFiles());
    for (const Restored& restored : origin_->restored_) {
      PREPACK_TRY(restored.problem.empty() ? Add(restored) : Refuse(restored, restored.problem));
    }
    PREPACK_TRY(AddScratch());
    return Checkpoint::Assemble(path, std::move(files_), std::move(tensors_), like,
                                std::string(kDeclaration), origin_);
  }

 private:
  Status OpenFiles() {
    for (const ModelFile& file : model_.files()) {
      PREPACK_TRY_ASSIGN(File opened, File::OpenForRead(file.file.path()));
      files_.push_back({.name = file.name,
                        .file = std::move(opened),
                        .tensors = file.tensors,
                        .data_start = file.data_start});
    }
    return {};
  }

  // Those who only look do without it.
  Status Refuse(const Restored& restored, std::string_view why, std::string_view hint = "") {
    if (options_.look) return {};
    origin_->errors_.push_back(
        Unsupported(fmt::format("tensor {}", restored.name), why).Hint(std::string(hint)));
    return {};
  }

  Status Add(const Restored& restored) {
    const std::optional<GgmlType> type = restored.type();
    if (!type || IsFloats(*type)) return AddFloats(restored);
    if (!IsDecoded(*type)) {
      return Refuse(restored,
                    fmt::format("weights of type {} are not decoded", InfoOf(*type).name));
    }
    if (IsEmbedding(restored) && !options_.look) return AddEmbedding(restored);
    return AddBlocks(restored, *type);
  }

  Status AddBlocks(const Restored& restored, GgmlType type) {
    bool codes = IsCanonical(type);
    const bool has_minimum = HasF16Minimum(type);
    if (has_minimum && options_.compare) codes = false;
    // Of files that prepack has made it is known.
    if (codes && has_minimum && model_.FindValue(kManifestHash) == nullptr) {
      for (const RestoredPiece& piece : restored.pieces) {
        PREPACK_TRY_ASSIGN(codes, HasZeroPoints(model_, *piece.tensor));
        if (!codes) break;
      }
    }
    if (!codes && !options_.dequantize && !options_.look) {
      return Refuse(
          restored,
          has_minimum ? fmt::format("minima of its {} blocks are no zero points", InfoOf(type).name)
                      : fmt::format("{} has scales of scales, which no other format has",
                                    InfoOf(type).name),
          "--fallback dequantize turns such tensors into bf16");
    }
    for (const RestoredPiece& piece : restored.pieces) AddTensorOfFile(*piece.tensor);
    origin_->blocks_.push_back({&restored, !codes});
    return {};
  }

  // A tensor of the file, as it lies there.
  void AddTensorOfFile(const Tensor& tensor) {
    if (!added_.insert(tensor.name).second) return;
    StoredTensor stored{.name = tensor.name,
                        .dtype = DType::kU8,
                        .file = static_cast<uint32_t>(tensor.file),
                        .shape = {tensor.bytes},
                        .offset = tensor.offset,
                        .bytes = tensor.bytes};
    if (IsFloats(tensor.type)) {
      stored.dtype = FloatOf(tensor.type);
      stored.shape = {tensor.bytes / InfoOf(tensor.type).bytes};
    }
    tensors_.push_back(std::move(stored));
    if (tensor.type != GgmlType::kNVFP4) return;
    const Tensor* factors = model_.FindTensor(FactorsOf(tensor.name));
    if (factors != nullptr && factors->type == GgmlType::kF32) AddTensorOfFile(*factors);
  }

  StoredTensor Described(const Restored& restored, DType dtype) const {
    return {
        .name = restored.name,
        .dtype = dtype,
        .file = 0,
        .shape = restored.shape,
        .offset = 0,
        .bytes = TensorBytes(dtype, {restored.shape.data(), restored.shape.size()}).value_or(0)};
  }

  Status AddFloats(const Restored& restored) {
    for (const RestoredPiece& piece : restored.pieces) {
      if (!IsDecoded(piece.tensor->type)) {
        return Refuse(restored, fmt::format("numbers of type {} are not restored",
                                            InfoOf(piece.tensor->type).name));
      }
    }
    const Tensor& tensor = *restored.pieces.front().tensor;
    const DType stored = FloatOf(tensor.type);
    // Norms and biases are F32 in GGUF, whatever they were.
    const DType wanted = restored.dtype.value_or(stored);
    if (LiesAsItIs(restored) && IsFloats(tensor.type) && wanted == stored) {
      StoredTensor view = Described(restored, stored);
      view.file = static_cast<uint32_t>(tensor.file);
      view.offset = tensor.offset + restored.pieces.front().before * InfoOf(tensor.type).bytes *
                                        (restored.pieces.front().elements ? 1 : restored.columns);
      tensors_.push_back(std::move(view));
      return {};
    }
    return AddRestored(restored, {wanted, stored, DType::kF32});
  }

  Status AddEmbedding(const Restored& restored) {
    return AddRestored(restored, {DType::kBF16, DType::kF16}, options_.dequantize);
  }

  // In the first dtype that holds it exactly; `rounds`: else in the first.
  Status AddRestored(const Restored& restored, std::vector<DType> dtypes, bool rounds = false) {
    if (!scratch_) {
      PREPACK_TRY_ASSIGN(ScratchFolder folder, ScratchFolder::Create());
      scratch_.emplace(std::move(folder));
      PREPACK_TRY_ASSIGN(File file, File::CreateNew(scratch_->path() / "restored"));
      restored_file_.emplace(std::move(file));
    }
    if (rounds) dtypes.push_back(dtypes.front());
    for (size_t i = 0; i < dtypes.size(); ++i) {
      const DType dtype = dtypes[i];
      if (dtype != DType::kBF16 && dtype != DType::kF16 && dtype != DType::kF32) continue;
      StoredTensor tensor = Described(restored, dtype);
      PREPACK_TRY_ASSIGN(const uint64_t wrong,
                         WriteRestored(model_, restored, dtype, *restored_file_, restored_bytes_));
      const bool may_round = rounds && i + 1 == dtypes.size();
      if (wrong != 0 && !may_round) continue;
      tensor.file = static_cast<uint32_t>(files_.size());
      tensor.offset = restored_bytes_;
      restored_bytes_ += CeilDiv(tensor.bytes, kAlignment) * kAlignment;
      ++restored_count_;
      tensors_.push_back(std::move(tensor));
      return {};
    }
    const bool is_embedding = !dtypes.empty() && dtypes.back() == DType::kF16;
    return Refuse(restored,
                  is_embedding ? "the embedding is quantized, and 16 bits do not hold it"
                               : "what llama.cpp's converter computed cannot be undone exactly",
                  is_embedding ? "--fallback dequantize rounds it to bf16" : "");
  }

  // The open file is all that is left of the folder.
  Status AddScratch() {
    if (!restored_file_) return {};
    PREPACK_TRY(restored_file_->Resize(restored_bytes_));
    PREPACK_TRY_ASSIGN(File file, File::OpenForRead(scratch_->path() / "restored"));
    files_.push_back({.name = "restored", .file = std::move(file), .tensors = restored_count_});
    return {};
  }

  static constexpr uint64_t kAlignment = 64;

  const GgufSource& options_;
  std::shared_ptr<FileOrigin> origin_;
  const Model& model_;
  std::vector<CheckpointFile> files_;
  std::vector<StoredTensor> tensors_;
  std::set<std::string> added_;
  std::optional<ScratchFolder> scratch_;
  std::optional<File> restored_file_;
  uint64_t restored_bytes_ = 0;
  size_t restored_count_ = 0;
};

FileOrigin::FileOrigin(Model model, Manifest manifest)
    : model_(std::move(model)), manifest_(std::move(manifest)) {
  static std::atomic<uint64_t> made = 0;
  number_ = ++made;
}

Status FileOrigin::Read(const Checkpoint& checkpoint, QuantizedModel& model) const {
  model.format = "gguf";
  model.quantization_config = JsonMember(checkpoint.config(), "quantization_config");
  model.errors = errors_;
  const auto add = [&](const Blocks& blocks, BlockModule module) {
    if (blocks.floats) {
      model.modules.push_back(MakeFloatLinear(checkpoint, std::move(module)));
    } else {
      model.Add(MakeBlockLinear(checkpoint, std::move(module)));
    }
  };
  for (const Blocks& blocks : blocks_) {
    const Restored& restored = *blocks.restored;
    std::string name = restored.name;
    if (name.ends_with(kOfWeights)) name.resize(name.size() - kOfWeights.size());
    const uint64_t count = restored.is_stack() ? restored.shape[0] : 1;
    const uint64_t rows = restored.rows / count;
    if (rows == 0) continue;
    for (uint64_t i = 0; i < count; ++i) {
      add(blocks, {.name = restored.is_stack() ? fmt::format("{}.{}", name, i) : name,
                   .whole = &restored,
                   .first = i * rows,
                   .n = rows,
                   .is_expert = restored.is_stack()});
    }
  }
  std::ranges::sort(model.modules, {}, [](const auto& linear) { return linear->module(); });
  FindingTally findings;
  for (const std::string& name : manifest_.left_out) {
    findings.Add("gguf-left-out", name, "the GGUF file does not hold it");
  }
  model.findings = findings.Take();
  return {};
}

namespace {

Result<Manifest> FindManifest(const Model& model, const std::filesystem::path& path,
                              const GgufSource& options) {
  if (!options.llama_cpp.empty()) {
    if (options.like.empty()) {
      return Usage("--llama-cpp", "its converter needs a model to say the names of")
          .Hint("--like FOLDER names the Hugging Face model that the file was made of");
    }
    return AskForNames(model, options);
  }
  const Value* hash = model.FindValue(kManifestHash);
  std::error_code error;
  const std::filesystem::path manifest = ManifestOf(path);
  if (hash != nullptr && hash->type == ValueType::kString &&
      (!options.look || std::filesystem::exists(manifest, error))) {
    PREPACK_TRY_ASSIGN(const std::string text, model.ReadText(*hash, 64));
    return ReadManifest(manifest, text);
  }
  if (options.look) return NamesOfTheFile(model);
  return Unsupported(path.string(),
                     "prepack has not made this file, so that the names of the model are unknown")
      .Hint("--llama-cpp DIR, with --like FOLDER for the Hugging Face model, asks llama.cpp");
}

}  // namespace

Result<Checkpoint> OpenGgufSource(const std::filesystem::path& path, const GgufSource& options) {
  PREPACK_TRY_ASSIGN(Model model, Model::Open(path));
  PREPACK_TRY_ASSIGN(Manifest manifest, FindManifest(model, path, options));
  std::optional<Checkpoint> like;
  if (!options.like.empty()) {
    PREPACK_TRY_ASSIGN(Checkpoint opened, Checkpoint::OpenConfigs(options.like));
    like.emplace(std::move(opened));
  }
  auto origin = std::make_shared<FileOrigin>(std::move(model), std::move(manifest));
  return SourceOpener(options, std::move(origin)).Open(path, like ? &*like : nullptr);
}

}  // namespace prepack::gguf
