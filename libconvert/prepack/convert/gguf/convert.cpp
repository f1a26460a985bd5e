#include "prepack/convert/gguf/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/base/isa.h"
#include "prepack/base/parallel.h"
#include "prepack/convert/finish_folder.h"
#include "prepack/convert/gguf/manifest.h"
#include "prepack/convert/gguf/output.h"
#include "prepack/convert/gguf/plan.h"
#include "prepack/convert/gguf/writer.h"
#include "prepack/gguf/blocks.h"
#include "prepack/gguf/header.h"
#include "prepack/gguf/keys.h"
#include "prepack/io/file.h"
#include "prepack/io/memory_limit.h"
#include "prepack/io/scratch_folder.h"
#include "prepack/packed/packed_model.h"
#include "prepack/packed/source_identity.h"

namespace prepack::gguf {
namespace {

constexpr uint64_t kHashDigits = 32;

// One conversion in progress.
class Conversion {
 public:
  Conversion(const ConvertOptions& options, const Checkpoint& checkpoint,
             const QuantizedModel& model, const Plan& plan, unsigned threads, Progress& progress)
      : options_(options),
        checkpoint_(checkpoint),
        model_(model),
        plan_(plan),
        threads_(threads),
        progress_(progress) {}

  Status Run() {
    PREPACK_TRY(ReadMetadata());
    Divide();
    PREPACK_TRY_ASSIGN(ModelOutput output,
                       options_.shard_bytes == 0
                           ? ModelOutput::OneFile(options_.output, options_.replace)
                           : ModelOutput::Split(options_.output, shards_.size()));
    const std::filesystem::path folder = WithoutTrailingSlashes(options_.output).parent_path();
    PREPACK_TRY(CheckFreeSpace(folder.empty() ? "." : folder, bytes_));
    PREPACK_TRY(OpenFiles(output));
    PREPACK_TRY_ASSIGN(
        written_, WriteTensors(checkpoint_, plan_, files_, alignment_,
                               {.exact = options_.plan.exact, .flushes = options_.flush}, threads_,
                               progress_));
    const std::string manifest = MakeManifest();
    PREPACK_TRY(FinishFiles(Xxh3Hex(manifest)));
    return output.Commit(manifest);
  }

  ConvertReport Report() const {
    ConvertReport report{.output = options_.output,
                         .format = model_.format,
                         .converter_class = plan_.converter_class,
                         .has_tokenizer = plan_.has_tokenizer,
                         .types = {},
                         .not_held = plan_.sources.not_held,
                         .rounded = {},
                         .left_out = plan_.sources.left_out,
                         .source_bytes = checkpoint_.total_bytes(),
                         .output_bytes = bytes_,
                         .files = shards_.size(),
                         .findings = model_.findings};
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const PlannedTensor& tensor = plan_.tensors[i];
      TypeCount& count = report.types[std::string(InfoOf(tensor.type).name)];
      ++count.tensors;
      count.bytes += tensor.bytes();
      if (written_[i].rounded.any()) report.rounded[tensor.name] = written_[i].rounded;
    }
    return report;
  }

 private:
  Status ReadMetadata() {
    PREPACK_TRY_ASSIGN(const File file, File::OpenForRead(plan_.metadata));
    PREPACK_TRY_ASSIGN(const Header header, ReadHeader(file));
    alignment_ = header.alignment;
    entry_count_ = header.values.size();
    if (header.values.empty()) {
      return Unsupported(options_.plan.llama_cpp.string(), "the converter wrote no metadata");
    }
    const Value& last = header.values.back();
    entries_.resize(last.offset + last.bytes - kCountsEnd);
    return file.ReadAt(kCountsEnd, std::as_writable_bytes(std::span(entries_)));
  }

  // Some tensors of the plan, in a file of their own.
  struct Shard {
    size_t first = 0;
    size_t count = 0;
    uint64_t header_bytes = 0;
    uint64_t bytes = 0;  // with the header
  };

  void Divide() {
    const uint64_t most = options_.shard_bytes == 0 ? UINT64_MAX : options_.shard_bytes;
    uint64_t bytes = 0;
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const uint64_t tensor = *CheckedAlignUp(plan_.tensors[i].bytes(), alignment_);
      if (shards_.empty() || bytes + tensor > most) {
        shards_.push_back({.first = i});
        bytes = 0;
      }
      bytes += tensor;
      ++shards_.back().count;
      shards_.back().bytes = bytes;
    }
    for (size_t no = 0; no < shards_.size(); ++no) {
      shards_[no].header_bytes = HeaderOf(no, std::string(kHashDigits, '0')).size();
      shards_[no].bytes += shards_[no].header_bytes;
      bytes_ += shards_[no].bytes;
    }
  }

  // Metadata is that of the first file. As llama.cpp writes them, the numbers of files have 16
  // bits.
  std::string HeaderOf(size_t no, const std::string& hash) const {
    std::string entries;
    uint64_t count = 0;
    if (no == 0) {
      entries = entries_ + TextEntry(kManifestHash, hash);
      count = entry_count_ + 1;
    }
    if (options_.shard_bytes != 0) {
      entries += Uint16Entry(kSplitNo, static_cast<uint16_t>(no));
      entries += Uint16Entry(kSplitCount, static_cast<uint16_t>(shards_.size()));
      entries += Int32Entry(kSplitTensors, static_cast<int32_t>(plan_.tensors.size()));
      count += 3;
    }
    return HeaderBytes(entries, count, alignment_,
                       std::span(plan_.tensors).subspan(shards_[no].first, shards_[no].count));
  }

  Status OpenFiles(ModelOutput& output) {
    if (shards_.size() > UINT16_MAX) {
      return Usage("--shard-size", "the model would have more files than GGUF can count")
          .Found(fmt::format("{}", shards_.size()));
    }
    PREPACK_TRY_ASSIGN(std::vector<File> files, output.CreateFiles());
    for (size_t no = 0; no < shards_.size(); ++no) {
      PREPACK_TRY(files[no].Allocate(shards_[no].bytes));
      files_.push_back({.file = std::move(files[no]),
                        .data_start = shards_[no].header_bytes,
                        .first = shards_[no].first,
                        .count = shards_[no].count});
    }
    return {};
  }

  Status FinishFiles(const std::string& hash) {
    for (size_t no = 0; no < files_.size(); ++no) {
      const std::string header = HeaderOf(no, hash);
      PREPACK_TRY(files_[no].file.WriteAt(0, std::as_bytes(std::span(header))));
    }
    progress_.Begin("flushing", 0);
    return ParallelFor(files_.size(), threads_, [&](size_t no, unsigned) {
      return options_.flush ? files_[no].file.Sync() : files_[no].file.CheckArrived();
    });
  }

  std::string MakeManifest() const {
    Manifest manifest = NamesOf(plan_.sources);
    manifest.source = PathToSource(options_.plan.source, options_.output);
    manifest.source_format = model_.format;
    manifest.source_identity = SourceIdentity(checkpoint_);
    manifest.converter_class = plan_.converter_class;
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const PlannedTensor& tensor = plan_.tensors[i];
      manifest.tensors[tensor.name] = {.type = tensor.type,
                                       .hash = written_[i].hash,
                                       .rows = tensor.rows,
                                       .rounded = written_[i].rounded,
                                       .group = GroupOf(tensor),
                                       .origin = tensor.origin};
    }
    NoteLeftOut(manifest);
    return ManifestText(manifest);
  }

  // The input channels that share a scale, if all modules in the tensor agree and a block holds
  // fewer.
  uint64_t GroupOf(const PlannedTensor& tensor) const {
    if (!HasCodes(tensor.type)) return 0;
    uint64_t group = 0;
    for (const RowPiece& piece : tensor.rows) {
      for (const QuantizedLinear* module : plan_.sources.sources[piece.source].modules) {
        const uint64_t size = module->scheme().group_size;
        if (group != 0 && size != group) return 0;
        group = size;
      }
    }
    return group > InfoOf(tensor.type).block ? group : 0;
  }

  static constexpr uint64_t kCountsEnd = 24;  // magic, version, and two counts

  const ConvertOptions& options_;
  const Checkpoint& checkpoint_;
  const QuantizedModel& model_;
  const Plan& plan_;
  const unsigned threads_;
  Progress& progress_;
  std::string entries_;  // of the metadata, as the converter wrote them
  uint64_t entry_count_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
  std::vector<Shard> shards_;
  std::vector<OutputFile> files_;
  std::vector<WrittenTensor> written_;
  uint64_t bytes_ = 0;  // of all files
};

}  // namespace

Result<ConvertReport> WritePlanned(const ConvertOptions& options, const Checkpoint& checkpoint,
                                   const QuantizedModel& model, const Plan& plan,
                                   Progress& progress) {
  const MemoryNeed need{.shared = 0, .per_thread = WriterMemory(plan)};
  PREPACK_TRY_ASSIGN(const unsigned threads,
                     ThreadsWithin(need, options.jobs, options.memory_limit, "converted"));
  Conversion conversion(options, checkpoint, model, plan, threads, progress);
  PREPACK_TRY(conversion.Run());
  return conversion.Report();
}

Result<ConvertReport> Convert(const ConvertOptions& options, Progress& progress) {
  PREPACK_TRY(ChooseIsa().status());
  PREPACK_TRY(CheckOutputPlace(options.plan.source, options.output));
  PREPACK_TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::Open(options.plan.source));
  PREPACK_TRY_ASSIGN(const QuantizedModel model,
                     ReadSourceModel(checkpoint, options.plan.accepted));
  PREPACK_TRY_ASSIGN(const ScratchFolder scratch, ScratchFolder::Create());
  progress.Begin("asking llama.cpp's converter", 0);
  PREPACK_TRY_ASSIGN(const Plan plan, MakePlan(checkpoint, model, options.plan, scratch.path()));
  return WritePlanned(options, checkpoint, model, plan, progress);
}

}  // namespace prepack::gguf
