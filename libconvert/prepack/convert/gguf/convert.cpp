#include "prepack/convert/gguf/convert.h"

#include <algorithm>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "prepack/base/isa.h"
#include "prepack/base/parallel.h"
#include "prepack/convert/delivery.h"
#include "prepack/convert/finish_folder.h"
#include "prepack/convert/gguf/file_layout.h"
#include "prepack/convert/gguf/manifest.h"
#include "prepack/convert/gguf/output.h"
#include "prepack/convert/gguf/plan.h"
#include "prepack/convert/gguf/resume.h"
#include "prepack/convert/gguf/units.h"
#include "prepack/convert/gguf/writer.h"
#include "prepack/gguf/blocks.h"
#include "prepack/gguf/keys.h"
#include "prepack/io/file.h"
#include "prepack/io/memory_limit.h"
#include "prepack/io/scratch_folder.h"
#include "prepack/packed/output_hash.h"
#include "prepack/packed/packed_model.h"
#include "prepack/packed/source_identity.h"

namespace prepack::gguf {
namespace {

// What a model is written into, and noted of it.
std::filesystem::path FirstFileOf(const ConvertOptions& options, size_t files) {
  if (options.shard_bytes == 0) return options.output;
  const std::filesystem::path folder = WithoutTrailingSlashes(options.output);
  return folder / SplitName(folder.filename().string(), 0, files);
}

// One conversion in progress.
class Conversion {
 public:
  Conversion(const ConvertOptions& options, Checkpoint& checkpoint, const QuantizedModel& model,
             const Plan& plan, const FileLayout& layout, std::optional<RunIdentity> identity,
             unsigned threads, Progress& progress)
      : options_(options),
        checkpoint_(checkpoint),
        model_(model),
        plan_(plan),
        layout_(layout),
        identity_(std::move(identity)),
        threads_(threads),
        progress_(progress),
        units_(DivideIntoUnits(checkpoint, plan)),
        source_hashes_(checkpoint) {}

  Status Run() {
    const Leftovers leftovers = options_.resume ? Leftovers::kKeep : Leftovers::kRemove;
    PREPACK_TRY_ASSIGN(
        ModelOutput output,
        options_.shard_bytes == 0
            ? ModelOutput::OneFile(options_.output, options_.replace, leftovers)
            : ModelOutput::Split(options_.output, layout_.shards().size(), leftovers));
    PREPACK_TRY(OpenFiles(output));
    PREPACK_TRY_ASSIGN(File values, File::OpenForRead(plan_.values));
    const auto ended = [&](size_t unit, const Written& written) { return Note(unit, written); };
    writer_.emplace(checkpoint_, plan_, units_, files_, std::move(values),
                    WriteChoice{.alignment = layout_.alignment(),
                                .exact = options_.plan.exact,
                                .flushes = options_.flush},
                    threads_, ended, progress_);
    PREPACK_TRY(GoOn());
    PREPACK_TRY(Fill(output));
    PREPACK_TRY_ASSIGN(written_, writer_->Take());
    const std::string manifest = MakeManifest();
    PREPACK_TRY(FinishFiles(Xxh3Hex(manifest)));
    return output.Commit(manifest);
  }

  size_t resumed_units() const { return finished_.size(); }
  void AddRounded(ConvertReport& report) const {
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      if (written_[i].rounded.any()) report.rounded[plan_.tensors[i].name] = written_[i].rounded;
    }
  }

 private:
  // With the journal, and what it says of an earlier run.
  Status OpenFiles(ModelOutput& output) {
    if (identity_) PREPACK_TRY(StartJournal(output));
    const uint64_t there = std::min(BytesOnDisk(output.folder(), output.names()), layout_.bytes());
    PREPACK_TRY(CheckFreeSpace(output.folder(), layout_.bytes() - there));
    std::vector<uint64_t> sizes;
    for (const FileLayout::Shard& shard : layout_.shards()) sizes.push_back(shard.bytes);
    PREPACK_TRY_ASSIGN(std::vector<File> files, output.OpenFiles(sizes, goes_on_, is_new_));
    for (size_t no = 0; no < files.size(); ++no) {
      const FileLayout::Shard& shard = layout_.shards()[no];
      files_.push_back({.file = std::move(files[no]),
                        .data_start = shard.header_bytes,
                        .first = shard.first,
                        .count = shard.count});
    }
    return {};
  }

  Status StartJournal(const ModelOutput& output) {
    const std::filesystem::path path = output.journal_path();
    PREPACK_TRY_ASSIGN(std::optional<JournalContents> earlier,
                       FindEarlierRun(path, *identity_, Part()));
    goes_on_ = earlier.has_value();
    PREPACK_TRY_ASSIGN(Journal journal, goes_on_ ? Journal::Continue(path, *earlier)
                                                 : Journal::Create(path, *identity_, Part()));
    journal_.emplace(std::move(journal));
    if (goes_on_) {
      finished_ = std::move(earlier->units);
      notes_ = std::move(earlier->notes);
    }
    return {};
  }

  std::vector<const StoredTensor*> MadeOf(size_t unit) const {
    return SourcesOf(checkpoint_, plan_, units_[unit]);
  }

  // Keeps what an earlier run has finished, of the same source.
  Status GoOn() {
    const auto is_in_place = [&](uint64_t unit, const FinishedUnit& finished) -> Result<bool> {
      if (unit >= units_.size() || is_new_[FileOf(unit)]) return false;
      const std::optional<Written> written = WrittenOf(finished);
      if (!written) return false;
      PREPACK_TRY_ASSIGN(const Hash128 hash, StreamedHash().Finish(writer_->RangeOf(unit)));
      return hash == written->hash;
    };
    const auto made_of = [&](size_t unit) { return MadeOf(unit); };
    PREPACK_TRY(DropUnfinished(is_in_place, threads_, finished_));
    PREPACK_TRY(CheckSources(checkpoint_, made_of, threads_, progress_, finished_));
    for (const auto& [unit, finished] : finished_) {
      writer_->Keep(unit, *WrittenOf(finished));
      for (const SourceNote& note : finished.sources) {
        source_hashes_.Set(checkpoint_.tensors()[note.tensor], note.hash);
      }
    }
    return {};
  }

  size_t FileOf(size_t unit) const {
    const auto behind =
        std::ranges::upper_bound(files_, units_[unit].tensor, {}, &OutputFile::first);
    return static_cast<size_t>(behind - files_.begin()) - 1;
  }

  // For the next run: what a unit is, and what it was made of. The source is in the page cache.
  Status Note(size_t unit, const Written& written) {
    if (!journal_) return {};
    std::vector<SourceNote> sources;
    for (const StoredTensor* tensor : MadeOf(unit)) {
      PREPACK_TRY_ASSIGN(const Hash128 hash, StreamedHash().Finish(RangeOf(checkpoint_, *tensor)));
      sources.push_back({NumberOf(checkpoint_, *tensor), hash});
    }
    PREPACK_TRY(journal_->Append(unit, NoteOf(written, sources)));
    const std::lock_guard lock(mutex_);
    for (const SourceNote& note : sources) {
      source_hashes_.Set(checkpoint_.tensors()[note.tensor], note.hash);
    }
    return {};
  }

  Status Fill(const ModelOutput& output) {
    uint64_t bytes = 0;
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      if (!finished_.contains(unit)) bytes += writer_->RangeOf(unit).bytes();
    }
    // Who looks at it reads as much again.
    progress_.Begin("writing", options_.observer == nullptr ? bytes : 2 * bytes);
    if (options_.flow.InBatches()) return FillInBatches(output);
    std::vector<size_t> all(units_.size());
    std::iota(all.begin(), all.end(), size_t{0});
    return writer_->Run(all);
  }

  Status FillInBatches(const ModelOutput& output) {
    const Part whole;
    SourceFlow flow(options_.flow, whole, checkpoint_, options_.observer);
    const auto made_of = [&](size_t unit) { return MadeOf(unit); };
    PREPACK_TRY(flow.Begin(units_.size(), made_of, finished_));
    if (options_.observer != nullptr) PREPACK_TRY(BeginObserving(output));
    for (size_t batch = 0; batch < flow.batches(); ++batch) {
      PREPACK_TRY(flow.Await(batch, options_.output.string()));
      PREPACK_TRY(writer_->Run(flow.UnitsOf(batch)));
      if (options_.observer != nullptr) {
        std::vector<size_t> units;
        for (const size_t unit : flow.UnitsOf(batch)) {
          if (!finished_.contains(unit)) units.push_back(unit);
        }
        PREPACK_TRY(Show(units));
      }
      PREPACK_TRY(FlushBatch(output));
      PREPACK_TRY(flow.Release(batch));
    }
    return flow.ReleaseAll();
  }

  // Shows what an earlier run has finished, too: as long as its source is here, it is judged again.
  Status BeginObserving(const ModelOutput& output) {
    PREPACK_TRY(WriteHeaders(std::string(kManifestHashDigits, '0')));
    PREPACK_TRY(options_.observer->Begins(output.folder() / output.names().front(), Records(),
                                          std::move(notes_)));
    std::vector<size_t> units;
    for (const auto& [unit, finished] : finished_) units.push_back(unit);
    return Show(units);
  }

  Status Show(const std::vector<size_t>& units) {
    std::vector<WrittenRows> written;
    for (const size_t unit : units) {
      const std::vector<const StoredTensor*> sources = MadeOf(unit);
      const bool is_here = std::ranges::all_of(
          sources, [&](const StoredTensor* tensor) { return checkpoint_.IsHere(*tensor); });
      written.push_back({.tensor = plan_.tensors[units_[unit].tensor].name,
                         .first = units_[unit].first,
                         .rows = units_[unit].rows,
                         .rounded = writer_->WrittenOf(unit).rounded,
                         .is_here = is_here});
    }
    PREPACK_TRY_ASSIGN(const std::vector<MeasuredNote> notes,
                       options_.observer->SourceMayGo(written));
    return journal_->Append(notes);
  }

  // All that a power failure must not take, once the source may go.
  Status FlushBatch(const ModelOutput& output) {
    PREPACK_TRY(FlushFiles());
    if (journal_) PREPACK_TRY(journal_->Sync());
    PREPACK_TRY(SyncFolder(output.folder()));
    return SyncFolder(output.folder().parent_path());
  }

  Status FlushFiles() {
    return ParallelFor(files_.size(), threads_, [&](size_t no, unsigned /*worker*/) {
      return options_.flush ? files_[no].file.Sync() : files_[no].file.CheckArrived();
    });
  }

  Status WriteHeaders(const std::string& manifest_hash) {
    for (size_t no = 0; no < files_.size(); ++no) {
      const std::string header = layout_.Header(no, manifest_hash);
      PREPACK_TRY(files_[no].file.WriteAt(0, std::as_bytes(std::span(header))));
    }
    return {};
  }

  Status FinishFiles(const std::string& manifest_hash) {
    PREPACK_TRY(WriteHeaders(manifest_hash));
    progress_.Begin("flushing", 0);
    return FlushFiles();
  }

  // The manifest, without what is only known in the end.
  Manifest Records() const {
    Manifest manifest = NamesOf(plan_.sources);
    manifest.source = PathToSource(options_.plan.source, options_.output, options_.flow.consume);
    manifest.source_format = model_.format;
    manifest.source_identity = SourceIdentity(checkpoint_);
    manifest.converter_class = plan_.converter_class;
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const PlannedTensor& tensor = plan_.tensors[i];
      manifest.tensors[tensor.name] = {.type = tensor.type,
                                       .hash = {},
                                       .rows = tensor.rows,
                                       .rounded = {},
                                       .group = GroupOf(tensor),
                                       .origin = tensor.origin};
    }
    NoteLeftOut(manifest);
    return manifest;
  }

  std::string MakeManifest() const {
    Manifest manifest = Records();
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      ManifestTensor& record = manifest.tensors.at(plan_.tensors[i].name);
      record.hash = written_[i].hash;
      record.rounded = written_[i].rounded;
    }
    if (identity_) {
      manifest.run = identity_;
      manifest.source_fingerprint = FingerprintOfLines(SourceLines(source_hashes_));
    }
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

  const ConvertOptions& options_;
  Checkpoint& checkpoint_;
  const QuantizedModel& model_;
  const Plan& plan_;
  const FileLayout& layout_;
  const std::optional<RunIdentity> identity_;  // of a run that can be continued
  const unsigned threads_;
  Progress& progress_;
  const std::vector<OutputUnit> units_;
  std::vector<OutputFile> files_;
  std::vector<bool> is_new_;  // of the files
  bool goes_on_ = false;      // with the journal of an earlier run
  std::optional<Journal> journal_;
  FinishedUnits finished_;  // by an earlier run
  std::vector<MeasuredNote> notes_;
  std::optional<TensorWriter> writer_;
  std::mutex mutex_;  // of what follows, while units are written
  TensorHashes source_hashes_;
  std::vector<Written> written_;  // by tensor
};

ConvertReport ReportOf(const ConvertOptions& options, const Checkpoint& checkpoint,
                       const QuantizedModel& model, const Plan& plan, const FileLayout& layout) {
  ConvertReport report{.output = options.output,
                       .first_file = FirstFileOf(options, layout.shards().size()),
                       .was_done = false,
                       .resumed_units = 0,
                       .format = model.format,
                       .converter_class = plan.converter_class,
                       .has_tokenizer = plan.has_tokenizer,
                       .types = {},
                       .not_held = plan.sources.not_held,
                       .rounded = {},
                       .left_out = plan.sources.left_out,
                       .source_bytes = checkpoint.total_bytes(),
                       .output_bytes = layout.bytes(),
                       .files = layout.shards().size(),
                       .findings = model.findings};
  for (const PlannedTensor& tensor : plan.tensors) {
    TypeCount& count = report.types[std::string(InfoOf(tensor.type).name)];
    ++count.tensors;
    count.bytes += tensor.bytes();
  }
  return report;
}

// The files when they are complete, and the manifest after all others.
Status Deliver(const ConvertOptions& options, const std::filesystem::path& first,
               const RunIdentity& identity) {
  Delivery delivery(options.flow.done);
  PREPACK_TRY(delivery.Begin(options.output, identity));
  const std::filesystem::path manifest = ManifestOf(first);
  if (options.shard_bytes != 0) {
    return delivery.DeliverFolder(first.parent_path(), manifest.filename().string());
  }
  PREPACK_TRY(delivery.Add(first.filename().string(), first));
  PREPACK_TRY(delivery.Await(options.output.string()));
  PREPACK_TRY(delivery.Add(manifest.filename().string(), manifest));
  return delivery.Await(options.output.string());
}

}  // namespace

Result<ConvertReport> WritePlanned(const ConvertOptions& options, Checkpoint& checkpoint,
                                   const QuantizedModel& model, const Plan& plan,
                                   Progress& progress) {
  const MemoryNeed need{.shared = 0, .per_thread = WriterMemory(plan)};
  PREPACK_TRY_ASSIGN(const unsigned threads,
                     ThreadsWithin(need, options.jobs, options.memory_limit, "converted"));
  PREPACK_TRY_ASSIGN(const FileLayout layout, FileLayout::Make(plan, options.shard_bytes));
  ConvertReport report = ReportOf(options, checkpoint, model, plan, layout);
  std::optional<RunIdentity> identity;
  if (options.resume || options.flow.done != nullptr) {
    PREPACK_TRY_ASSIGN(identity, IdentityOf(checkpoint, plan, options.plan, options.shard_bytes));
  }
  if (options.resume && !options.replace) {
    PREPACK_TRY_ASSIGN(
        const std::optional<Manifest> done,
        FindFinishedRun(report.first_file, *identity, checkpoint, plan, threads, progress));
    report.was_done = done.has_value();
    if (done) {
      for (const auto& [name, tensor] : done->tensors) {
        if (tensor.rounded.any()) report.rounded[name] = tensor.rounded;
      }
    }
  }
  if (!report.was_done) {
    Conversion conversion(options, checkpoint, model, plan, layout,
                          options.resume ? identity : std::nullopt, threads, progress);
    PREPACK_TRY(conversion.Run());
    report.resumed_units = conversion.resumed_units();
    conversion.AddRounded(report);
  }
  if (options.flow.done != nullptr) PREPACK_TRY(Deliver(options, report.first_file, *identity));
  return report;
}

Result<ConvertReport> Convert(const ConvertOptions& options, Progress& progress) {
  PREPACK_TRY(ChooseIsa().status());
  PREPACK_TRY(CheckOutputPlace(options.plan.source, options.output));
  PREPACK_TRY(CheckFlow(options.flow, options.flush, options.resume));
  const auto only_plan = [&]() -> Status {
    PREPACK_TRY_ASSIGN(const Checkpoint checkpoint, Checkpoint::Open(options.plan.source));
    PREPACK_TRY_ASSIGN(const QuantizedModel model,
                       ReadSourceModel(checkpoint, options.plan.accepted));
    PREPACK_TRY_ASSIGN(const ScratchFolder scratch, ScratchFolder::Create());
    return MakePlan(checkpoint, model, options.plan, scratch.path()).status();
  };
  progress.Begin("asking llama.cpp's converter", 0);
  PREPACK_TRY(BringHeaders(options.flow, options.plan.source, only_plan));
  std::optional<ReadingsNoted> noted;
  if (options.flow.consume) noted.emplace();
  PREPACK_TRY_ASSIGN(Checkpoint checkpoint, Checkpoint::Open(options.plan.source));
  if (!options.resume && options.flow.fetch == nullptr) PREPACK_TRY(CheckIsHere(checkpoint));
  PREPACK_TRY_ASSIGN(const QuantizedModel model,
                     ReadSourceModel(checkpoint, options.plan.accepted));
  PREPACK_TRY_ASSIGN(const ScratchFolder scratch, ScratchFolder::Create());
  PREPACK_TRY_ASSIGN(const Plan plan, MakePlan(checkpoint, model, options.plan, scratch.path()));
  noted.reset();
  return WritePlanned(options, checkpoint, model, plan, progress);
}

}  // namespace prepack::gguf
