#include "prepack/convert/gguf/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/base/isa.h"
#include "prepack/convert/finish_folder.h"
#include "prepack/convert/gguf/manifest.h"
#include "prepack/convert/gguf/plan.h"
#include "prepack/convert/gguf/writer.h"
#include "prepack/gguf/keys.h"
#include "prepack/gguf/model.h"
#include "prepack/io/file.h"
#include "prepack/io/memory_limit.h"
#include "prepack/io/posix.h"
#include "prepack/io/scratch_folder.h"
#include "prepack/packed/packed_model.h"
#include "prepack/packed/source_identity.h"

namespace prepack::gguf {
namespace {

constexpr uint64_t kHashDigits = 32;

// A file that appears whole or not at all: written under a hidden name beside it.
class HiddenFile {
 public:
  static Result<HiddenFile> Create(const std::filesystem::path& path, bool replace) {
    PREPACK_TRY_ASSIGN(const std::optional<struct stat> there, LookAtLink(path));
    if (there && !replace) {
      return Usage(path.string(), "it exists").Hint("--force replaces it, or choose another name");
    }
    if (there && (!S_ISREG(there->st_mode) || !IsGguf(path))) {
      return Usage(path.string(), "it exists and is no GGUF file: --force does not replace it")
          .Hint("Choose another name");
    }
    const std::filesystem::path partial =
        path.parent_path() / fmt::format(".{}.prepack-partial", path.filename().string());
    if (const int result = posix::RemoveTree(partial); result < 0) {
      return SystemError(partial.string(), "cannot remove what an earlier run left", -result);
    }
    PREPACK_TRY_ASSIGN(File file, File::CreateNew(partial));
    return HiddenFile(path, partial, std::move(file));
  }

  HiddenFile(HiddenFile&& other) noexcept
      : path_(std::move(other.path_)),
        partial_(std::exchange(other.partial_, {})),
        file_(std::move(other.file_)) {}
  HiddenFile& operator=(HiddenFile&&) = delete;
  ~HiddenFile() {
    if (!partial_.empty()) (void)posix::RemoveTree(partial_);
  }

  File& file() { return file_; }

  Status Commit() {
    if (const int result = posix::Rename(partial_, path_); result < 0) {
      return SystemError(path_.string(), "cannot give the file its name", -result);
    }
    partial_.clear();
    const std::filesystem::path folder = path_.parent_path();
    return SyncFolder(folder.empty() ? "." : folder);
  }

 private:
  HiddenFile(std::filesystem::path path, std::filesystem::path partial, File file)
      : path_(std::move(path)), partial_(std::move(partial)), file_(std::move(file)) {}

  OrderlyEnd orderly_end_;  // the first member, so that it outlives all that is to be cleaned up
  std::filesystem::path path_;
  std::filesystem::path partial_;  // empty: it has its name, or was moved from
  File file_;
};

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
    const uint64_t header = HeaderWith(std::string(kHashDigits, '0')).size();
    uint64_t bytes = header;
    for (const PlannedTensor& tensor : plan_.tensors)
      bytes += *CheckedAlignUp(tensor.bytes(), alignment_);
    PREPACK_TRY_ASSIGN(HiddenFile hidden, HiddenFile::Create(options_.output, options_.replace));
    const std::filesystem::path folder = options_.output.parent_path();
    PREPACK_TRY(CheckFreeSpace(folder.empty() ? "." : folder, bytes));
    File& file = hidden.file();
    PREPACK_TRY(file.Allocate(bytes));
    PREPACK_TRY_ASSIGN(written_, WriteTensors(checkpoint_, plan_, header, alignment_,
                                              options_.plan.exact, threads_, progress_, file));
    const std::string manifest = MakeManifest();
    const std::string text = HeaderWith(Xxh3Hex(manifest));
    PREPACK_TRY(file.WriteAt(0, std::as_bytes(std::span(text))));
    progress_.Begin("flushing", 0);
    PREPACK_TRY(options_.flush ? file.Sync() : file.CheckArrived());
    // The manifest first: without its file it is a file too many, the other way round one too few.
    PREPACK_TRY(WriteFileAtomically(ManifestOf(options_.output), manifest));
    bytes_ = bytes;
    return hidden.Commit();
  }

  ConvertReport Report() const {
    ConvertReport report{.output = options_.output,
                         .format = model_.format,
                         .converter_class = plan_.converter_class,
                         .has_tokenizer = plan_.has_tokenizer,
                         .types = {},
                         .floats = plan_.sources.not_held,
                         .rounded = {},
                         .left_out = plan_.sources.left_out,
                         .source_bytes = checkpoint_.total_bytes(),
                         .output_bytes = bytes_,
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
    entry_count_ = header.values.size() + 1;
    if (header.values.empty()) {
      return Unsupported(options_.plan.llama_cpp.string(), "the converter wrote no metadata");
    }
    const Value& last = header.values.back();
    entries_.resize(last.offset + last.bytes - kCountsEnd);
    return file.ReadAt(kCountsEnd, std::as_writable_bytes(std::span(entries_)));
  }

  std::string HeaderWith(const std::string& hash) const {
    return HeaderBytes(entries_ + TextEntry(kManifestHash, hash), entry_count_, alignment_,
                       plan_.tensors);
  }

  std::string MakeManifest() const {
    Manifest manifest{.source = PathToSource(options_.plan.source, options_.output),
                      .source_format = model_.format,
                      .source_identity = SourceIdentity(checkpoint_),
                      .converter_class = plan_.converter_class,
                      .sources = {},
                      .tensors = {}};
    for (const Source& source : plan_.sources.sources) manifest.sources.push_back(source.name);
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const PlannedTensor& tensor = plan_.tensors[i];
      manifest.tensors[tensor.name] = {.type = tensor.type,
                                       .hash = written_[i].hash,
                                       .rows = tensor.rows,
                                       .rounded = written_[i].rounded};
    }
    return ManifestText(manifest);
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
  std::vector<WrittenTensor> written_;
  uint64_t bytes_ = 0;
};

}  // namespace

Result<ConvertReport> Convert(const ConvertOptions& options, Progress& progress) {
  PREPACK_TRY(ChooseIsa().status());
  PREPACK_TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::Open(options.plan.source));
  PREPACK_TRY_ASSIGN(const QuantizedModel model,
                     ReadSourceModel(checkpoint, options.plan.accepted));
  PREPACK_TRY_ASSIGN(const ScratchFolder scratch, ScratchFolder::Create());
  progress.Begin("asking llama.cpp's converter", 0);
  PREPACK_TRY_ASSIGN(const Plan plan, MakePlan(checkpoint, model, options.plan, scratch.path()));
  const MemoryNeed need{.shared = 0, .per_thread = WriterMemory(plan)};
  PREPACK_TRY_ASSIGN(const unsigned threads,
                     ThreadsWithin(need, options.jobs, options.memory_limit, "converted"));
  Conversion conversion(options, checkpoint, model, plan, threads, progress);
  PREPACK_TRY(conversion.Run());
  return conversion.Report();
}

}  // namespace prepack::gguf
