// The order of a conversion. Everything that can be refused is refused before the hidden folder
// exists; the folder is renamed only after the manifest, which is the last file, is complete.

#include "prepack/convert/convert.h"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <utility>

#include "prepack/base/isa.h"
#include "prepack/base/parallel.h"
#include "prepack/base/status.h"
#include "prepack/convert/delivery.h"
#include "prepack/convert/finish_folder.h"
#include "prepack/convert/merge.h"
#include "prepack/convert/resume.h"
#include "prepack/convert/shard_filler.h"
#include "prepack/gguf/model.h"
#include "prepack/io/file.h"
#include "prepack/io/memory_limit.h"
#include "prepack/io/output_folder.h"
#include "prepack/measure/measurements.h"
#include "prepack/packed/manifest.h"
#include "prepack/packed/output_hash.h"
#include "prepack/packed/source_identity.h"

namespace prepack {
namespace {

std::filesystem::path OutputOf(const ConvertOptions& options) {
  return options.part.IsWhole() ? options.output : PartFolder(options.output, options.part);
}

// One conversion in progress. Its steps are called in the order in which they are declared.
class Conversion {
 public:
  Conversion(const ConvertOptions& options, const Checkpoint& checkpoint,
             const QuantizedModel& model, const Plan& plan, RunIdentity identity, unsigned threads,
             SourceFlow& flow, Delivery& delivery, Progress& progress)
      : options_(options),
        checkpoint_(checkpoint),
        model_(model),
        plan_(plan),
        identity_(std::move(identity)),
        threads_(threads),
        flow_(flow),
        delivery_(delivery),
        progress_(progress) {}

  // Opens the shards and, with --resume, finds what they already hold.
  Status OpenShards(const OutputFolder& folder);
  Status FillShards();
  Status WriteRest();
  ConvertReport Report() const;

 private:
  // All of the manifest that is known of a conversion, but its modules and tensors.
  Manifest MakeManifest() const;
  std::vector<IndexedShard> Indexed() const;
  Status BeginObserving();
  Result<std::vector<MeasuredNote>> NotesOfConsumed(const Manifest& manifest);
  Status StartJournal(const OutputFolder& folder);
  Status OpenShard(size_t index);
  Result<bool> IsInPlace(uint64_t number, const FinishedUnit& finished) const;
  std::vector<const StoredTensor*> MadeOf(size_t number) const {
    return SourcesOf(checkpoint_, plan_, shards_.units[number]);
  }
  Status TakeSideFiles();
  Status FillInBatches();
  Status FlushBatch();
  Status DeliverShards(std::span<const size_t> units);
  Status FlushShards();
  Status WriteWhole();
  Status WritePart();
  // The first part carries the side files.
  bool HasSideFiles() const { return options_.part.index == 1; }

  const ConvertOptions& options_;
  const Checkpoint& checkpoint_;
  const QuantizedModel& model_;
  const Plan& plan_;
  const RunIdentity identity_;
  const unsigned threads_;
  SourceFlow& flow_;
  Delivery& delivery_;
  Progress& progress_;

  std::filesystem::path folder_;
  OutputShards shards_;
  std::vector<SafetensorsWriter> writers_;
  std::set<size_t> created_;  // shards that did not exist before
  std::optional<Journal> journal_;
  FinishedUnits finished_;               // by an earlier run
  std::vector<MeasuredNote> notes_;      // by an earlier run
  std::vector<std::string> side_files_;  // that the output has
  FileHashes source_files_;              // of a part
  std::optional<HubOrigin> source_hub_;
  std::optional<ShardFiller> filler_;
  std::vector<size_t> units_left_;  // of each shard
  std::optional<ManifestMaker> maker_;
  Manifest manifest_;
};

Status Conversion::StartJournal(const OutputFolder& folder) {
  const std::filesystem::path path = folder.journal_path();
  PREPACK_TRY_ASSIGN(std::optional<JournalContents> earlier,
                     FindEarlierRun(path, identity_, options_.part));
  const bool goes_on = earlier.has_value();
  PREPACK_TRY(RemoveAllBut(folder_, goes_on ? shards_.names : std::vector<std::string>()));
  PREPACK_TRY_ASSIGN(Journal journal, goes_on ? Journal::Continue(path, *earlier)
                                              : Journal::Create(path, identity_, options_.part));
  journal_.emplace(std::move(journal));
  if (goes_on) {
    finished_ = std::move(earlier->units);
    notes_ = std::move(earlier->notes);
  }
  return {};
}

Status Conversion::OpenShard(size_t index) {
  const std::filesystem::path path = folder_ / shards_.names[index];
  PREPACK_TRY_ASSIGN(std::optional<SafetensorsWriter> earlier,
                     SafetensorsWriter::Reopen(path, shards_.plans[index]));
  if (earlier.has_value()) {
    writers_.push_back(*std::move(earlier));
  } else {
    created_.insert(index);
    PREPACK_TRY_ASSIGN(SafetensorsWriter writer,
                       SafetensorsWriter::Replace(path, std::move(shards_.plans[index])));
    writers_.push_back(std::move(writer));
  }
  writers_.back().FlushEarly(options_.flush);
  return {};
}

// Whether the shards hold the unit as the journal says.
Result<bool> Conversion::IsInPlace(uint64_t number, const FinishedUnit& finished) const {
  if (number >= shards_.units.size()) return false;
  const OutputUnit& unit = shards_.units[number];
  if (finished.outputs.size() != unit.slots.size()) return false;
  for (size_t i = 0; i < unit.slots.size(); ++i) {
    const OutputSlot slot = unit.slots[i];
    if (created_.contains(slot.shard)) return false;
    PREPACK_TRY_ASSIGN(const Hash128 hash,
                       StreamedHash().Finish(RangeOf(writers_[slot.shard], slot.index)));
    if (hash != finished.outputs[i]) return false;
  }
  return true;
}

Status Conversion::OpenShards(const OutputFolder& folder) {
  folder_ = folder.path();
  PREPACK_TRY_ASSIGN(OutputShards shards,
                     PlanOutputShards(checkpoint_, plan_, options_.shard_bytes, options_.part));
  shards_ = std::move(shards);
  PREPACK_TRY(StartJournal(folder));
  // Shards of an interrupted run are either continued or removed to make room.
  const uint64_t there = std::min(BytesOnDisk(folder_, shards_.names), shards_.file_bytes);
  PREPACK_TRY_ASSIGN(const uint64_t side_bytes,
                     HasSideFiles() ? CheckSideFiles(checkpoint_, plan_.target->id) : 0);
  PREPACK_TRY(CheckFreeSpace(folder_, shards_.file_bytes - there + side_bytes));
  for (size_t i = 0; i < shards_.names.size(); ++i) {
    PREPACK_TRY(OpenShard(i));
  }
  const auto is_in_place = [&](uint64_t unit, const FinishedUnit& finished) {
    return IsInPlace(unit, finished);
  };
  const auto sources_of = [&](size_t unit) { return MadeOf(unit); };
  PREPACK_TRY(DropUnfinished(is_in_place, threads_, finished_));
  PREPACK_TRY(CheckSources(checkpoint_, sources_of, threads_, progress_, finished_));
  return TakeSideFiles();
}

// Done before the weights: hours later, these files may belong to another revision.
Status Conversion::TakeSideFiles() {
  PREPACK_TRY_ASSIGN(std::optional<HubOrigin> hub, HubOriginOf(options_.source));
  source_hub_ = std::move(hub);
  if (!options_.part.IsWhole()) {
    PREPACK_TRY_ASSIGN(FileHashes hashes, HashSideFiles(checkpoint_, plan_.target->id, progress_));
    source_files_ = std::move(hashes);
  }
  if (!HasSideFiles()) return {};
  PREPACK_TRY_ASSIGN(std::vector<std::string> names,
                     CopySideFiles(checkpoint_, plan_.target->id, folder_));
  side_files_ = std::move(names);
  return {};
}

Status Conversion::FillShards() {
  filler_.emplace(checkpoint_, plan_, shards_, writers_, finished_, *journal_, progress_);
  maker_.emplace(plan_, shards_, writers_, *filler_);
  if (options_.observer != nullptr) PREPACK_TRY(BeginObserving());
  PREPACK_TRY(options_.flow.InBatches() ? FillInBatches()
                                        : filler_->Run(threads_, options_.output.string()));
  progress_.Begin("flushing", 0);
  return FlushShards();
}

Status Conversion::FlushShards() {
  return ParallelFor(writers_.size(), threads_, [&](size_t index, unsigned) {
    return options_.flush ? writers_[index].Sync() : writers_[index].CheckArrived();
  });
}

// All that a power failure must not take, once the source may go: the bytes, the names of their
// files, and what the next run needs to know of them.
Status Conversion::FlushBatch() {
  PREPACK_TRY(FlushShards());
  PREPACK_TRY(journal_->Sync());
  PREPACK_TRY(SyncFolder(folder_));
  return SyncFolder(folder_.parent_path());
}

Status Conversion::FillInBatches() {
  const std::string output = options_.output.string();
  const auto sources_of = [&](size_t unit) { return MadeOf(unit); };
  PREPACK_TRY(flow_.Begin(shards_.units.size(), sources_of, finished_));
  filler_->Begin(threads_, output);
  const bool judges = options_.flow.consume && options_.observer != nullptr;
  if (judges) PREPACK_TRY(filler_->ShowFinished());
  for (size_t batch = 0; batch < flow_.batches(); ++batch) {
    PREPACK_TRY(flow_.Await(batch, output));
    PREPACK_TRY(filler_->RunUnits(flow_.UnitsOf(batch)));
    if (judges) {
      PREPACK_TRY_ASSIGN(const std::vector<MeasuredNote> notes, options_.observer->SourceMayGo());
      PREPACK_TRY(journal_->Append(notes));
    }
    PREPACK_TRY(FlushBatch());
    PREPACK_TRY(flow_.Release(batch));
    PREPACK_TRY(DeliverShards(flow_.UnitsOf(batch)));
  }
  return flow_.ReleaseAll();
}

// Those that have got their last units, which are flushed.
Status Conversion::DeliverShards(std::span<const size_t> units) {
  if (units_left_.empty()) {
    units_left_.resize(shards_.names.size());
    for (const OutputUnit& unit : shards_.units) ++units_left_[unit.slots.front().shard];
  }
  for (const size_t unit : units) {
    const uint32_t shard = shards_.units[unit].slots.front().shard;
    if (--units_left_[shard] != 0) continue;
    PREPACK_TRY(delivery_.Add(shards_.names[shard], folder_ / shards_.names[shard]));
  }
  return {};
}

Manifest Conversion::MakeManifest() const {
  Manifest manifest = maker_->Make(model_);
  manifest.exact_scales = options_.plan.exact_scales;
  manifest.accepted = options_.plan.accepted;
  manifest.run = identity_;
  manifest.source_path = PathToSource(options_.source, options_.output, options_.flow.consume);
  manifest.source_hub = source_hub_;
  return manifest;
}

// What an earlier run has finished and consumed is there for nobody to look at: what that run noted
// of it has to do. All else is looked at again.
Result<std::vector<MeasuredNote>> Conversion::NotesOfConsumed(const Manifest& manifest) {
  std::set<std::string, std::less<>> noted;
  for (const MeasuredNote& note : notes_) noted.insert(note.unit);
  std::set<std::string, std::less<>> consumed;
  for (const auto& [number, done] : finished_) {
    const OutputUnit& unit = shards_.units[number];
    const auto sources = MadeOf(number);
    const auto gone = std::ranges::find_if_not(
        sources, [&](const StoredTensor* tensor) { return checkpoint_.IsHere(*tensor); });
    if (gone == sources.end()) continue;
    const std::string name = unit.copied != nullptr
                                 ? UnitOfTensor(unit.copied->name)
                                 : UnitOfModule(plan_.modules[unit.module].linear->module());
    if (!noted.contains(name)) {
      return Usage("--verify", "an earlier run has consumed what some modules were made of")
          .Found(fmt::format("{}, and only headers of {}", name,
                             checkpoint_.files()[(*gone)->file].name))
          .Hint("Go on without --verify");
    }
    consumed.insert(name);
    if (unit.copied != nullptr) continue;
    for (const FusedMember& member :
         manifest.modules.find(plan_.modules[unit.module].linear->module())->second.fused) {
      consumed.insert(UnitOfModule(member.module));
    }
  }
  std::erase_if(notes_, [&](const MeasuredNote& note) { return !consumed.contains(note.unit); });
  return std::move(notes_);
}

std::vector<IndexedShard> Conversion::Indexed() const {
  std::vector<IndexedShard> indexed;
  for (size_t i = 0; i < writers_.size(); ++i) {
    indexed.push_back({shards_.names[i], &writers_[i].header()});
  }
  return indexed;
}

Status Conversion::BeginObserving() {
  filler_->SetObserver(options_.observer);
  Manifest manifest = MakeManifest();
  // Who looks at a checkpoint opens it as one.
  if (!plan_.target->format.empty()) {
    PREPACK_TRY(WriteConfigs(folder_, Indexed(), checkpoint_.config_text(),
                             {*maker_, maker_->PackedModules()}, manifest)
                    .status());
  }
  maker_->VisitModules([&](const std::string& name, const ModuleRecord& record) {
    manifest.modules.emplace(name, record);
  });
  maker_->VisitTensors([&](const TensorRecord& tensor) { manifest.tensors.push_back(tensor); });
  PREPACK_TRY_ASSIGN(std::vector<MeasuredNote> notes, NotesOfConsumed(manifest));
  return options_.observer->Begins(folder_, std::move(manifest),
                                   {.goes = options_.flow.consume, .notes = std::move(notes)});
}

Status Conversion::WriteRest() {
  manifest_ = MakeManifest();
  return options_.part.IsWhole() ? WriteWhole() : WritePart();
}

Status Conversion::WriteWhole() {
  manifest_.source_fingerprint = SourceFingerprint(filler_->source_hashes());
  return FinishFolder(folder_, Indexed(), checkpoint_.config_text(), side_files_,
                      {*maker_, maker_->PackedModules()}, progress_, manifest_);
}

Status Conversion::WritePart() {
  PartRecord record{.identity = identity_,
                    .part = options_.part,
                    .source_config = checkpoint_.config_text(),
                    .source_tensors = SourceLines(filler_->source_hashes()),
                    .witnessed_tensors = {},
                    .all_source_tensors = checkpoint_.tensors().size(),
                    .side_files = side_files_,
                    .source_files = source_files_};
  // The tensors that the part is made from have been hashed already.
  TensorHashes seen = filler_->source_hashes();
  if (!options_.trust_source) {
    Status status =
        HashTensorsAsStage(WitnessedTensors(checkpoint_, options_.part), threads_, progress_, seen);
    if (!status.ok()) return status;
  }
  record.witnessed_tensors = SourceLines(seen);
  for (const auto& [name, line] : record.source_tensors) record.witnessed_tensors.erase(name);
  manifest_.source_fingerprint = FingerprintOfLines(record.source_tensors);
  return WritePartRecord(folder_, record, manifest_, *maker_);
}

// What the manifest says about a conversion or a part of one, without modules and tensors.
ConvertReport ReportOf(const ConvertOptions& options, const Checkpoint& checkpoint,
                       const QuantizedModel& model, const Plan& plan, const Manifest& manifest) {
  ConvertReport report;
  report.output = OutputOf(options);
  report.target = manifest.target;
  report.format = manifest.source_format;
  report.part = options.part;
  report.kept = manifest.kept;
  report.dequantized = manifest.dequantized;
  report.apart = plan.apart;
  report.source_bytes = plan.source_bytes;
  for (const auto& [name, file] : manifest.files) {
    if (!name.ends_with(".safetensors")) continue;
    report.output_bytes += file.bytes;
    ++report.shards;
  }
  report.source_fingerprint = manifest.source_fingerprint;
  if (options.part.index == 1) report.not_copied = checkpoint.left_out();
  report.findings = model.findings;
  return report;
}

// What the user has accepted and the conversion has met; of modules that are alike in it, the first
// is named. Parts and resumed runs do not see all of the source, so they cannot say what was not
// met.
void AddAccepted(const AcceptedFindings& accepted, bool saw_all, ConvertReport& report) {
  std::vector<Finding> findings;
  for (const auto& noted : accepted.Noted()) {
    const Finding& finding = noted.second;
    const auto alike = std::ranges::find_if(findings, [&](const Finding& earlier) {
      return earlier.id == finding.id && earlier.message == finding.message;
    });
    if (alike == findings.end()) {
      findings.push_back(finding);
    } else {
      ++alike->more;
    }
  }
  if (saw_all) std::ranges::move(UnusedAcceptances(accepted), std::back_inserter(findings));
  std::ranges::move(findings, std::back_inserter(report.findings));
}

// How many bytes of the source these shards are made from.
uint64_t SourceBytes(const Plan& plan, const OutputShards& shards) {
  uint64_t bytes = 0;
  for (const OutputUnit& unit : shards.units) {
    bytes += unit.copied != nullptr ? unit.copied->bytes
                                    : plan.modules[unit.module].linear->source_bytes();
  }
  return bytes;
}

ConvertReport Conversion::Report() const {
  ConvertReport report = ReportOf(options_, checkpoint_, model_, plan_, manifest_);
  if (!options_.part.IsWhole()) report.source_bytes = SourceBytes(plan_, shards_);
  report.resumed_units = finished_.size();
  for (size_t i = 0; i < shards_.units.size(); ++i) {
    const OutputUnit& unit = shards_.units[i];
    if (unit.copied != nullptr) {
      ++report.copied_tensors;
      continue;
    }
    ++report.packed_modules;
    report.fused_modules += plan_.modules[unit.module].linear->members().empty() ? 0U : 1U;
    ++report.layouts[std::string(plan_.modules[unit.module].chosen->id)];
    report.rounded_scales += filler_->rounded_scales(i);
  }
  AddAccepted(options_.plan.accepted, options_.part.IsWhole() && finished_.empty(), report);
  return report;
}

// The report of an earlier run with this manifest.
Result<ConvertReport> ReportOfDone(const ConvertOptions& options, const Checkpoint& checkpoint,
                                   const QuantizedModel& model, const Plan& plan,
                                   const Manifest& manifest) {
  PREPACK_TRY_ASSIGN(const OutputShards shards,
                     PlanOutputShards(checkpoint, plan, options.shard_bytes, options.part));
  ConvertReport report = ReportOf(options, checkpoint, model, plan, manifest);
  report.source_bytes = SourceBytes(plan, shards);
  report.was_done = true;
  report.packed_modules = manifest.modules.size();
  for (const auto& [name, module] : manifest.modules) {
    ++report.layouts[module.layout];
    report.fused_modules += module.fused.empty() ? 0U : 1U;
    report.rounded_scales += module.rounded_scales;
  }
  report.copied_tensors = manifest.tensors.size();
  return report;
}

Status CheckFlowOf(const ConvertOptions& options) {
  const FlowOptions& flow = options.flow;
  PREPACK_TRY(CheckFlow(flow, options.flush, options.resume));
  if (options.part.IsWhole() || !flow.MovesSource()) return {};
  if (flow.consume && flow.fetch == nullptr) {
    return Usage("--consume", "other parts need the shards, too")
        .Expected("--fetch, into a folder of headers of this part's own");
  }
  if (options.trust_source) return {};
  return Usage("--fetch", "a part with a source that comes bit by bit reads nothing but its own")
      .Expected("--trust-source");
}

// The folder needs a config. And a GGUF file is read in no order that it could come or go in.
Status CheckLike(const ConvertOptions& options) {
  if (!gguf::IsGguf(options.source)) return {};
  if (options.flow.MovesSource()) {
    return Usage("--fetch, --consume", "they are for sources in shards of safetensors");
  }
  if (!options.gguf.like.empty()) return {};
  return Usage("--like", "a GGUF file has no config.json, which the output needs")
      .Hint(
          "--like FOLDER names a folder with config.json and tokenizer, as of the Hugging Face "
          "model");
}

}  // namespace

Result<ConvertReport> Convert(const ConvertOptions& options, Progress& progress) {
  PREPACK_TRY(ChooseIsa().status());
  PREPACK_TRY(CheckOutputPlace(options.source, options.output));
  PREPACK_TRY(CheckLike(options));
  PREPACK_TRY(CheckFlowOf(options));
  std::optional<ReadingsNoted> noted;
  if (options.flow.consume) noted.emplace();
  PREPACK_TRY_ASSIGN(Checkpoint checkpoint, OpenSource(options.source, options.gguf));
  if (!options.resume && options.flow.fetch == nullptr) PREPACK_TRY(CheckIsHere(checkpoint));
  PREPACK_TRY_ASSIGN(const QuantizedModel model, ReadModelToPlan(checkpoint, options.plan));
  PREPACK_TRY_ASSIGN(const Plan plan, MakePlan(checkpoint, model, options.plan));
  PREPACK_TRY(CheckPlan(plan));
  noted.reset();
  const MemoryNeed need{.shared = 0, .per_thread = plan.PeakMemory(1)};
  PREPACK_TRY_ASSIGN(const unsigned threads,
                     ThreadsWithin(need, options.jobs, options.memory_limit, "converted"));

  RunIdentity identity = IdentityOf(checkpoint, plan, options.plan, options.shard_bytes);
  const std::filesystem::path output = OutputOf(options);
  const std::string_view mark = options.part.IsWhole() ? kManifestName : kPartName;
  Delivery delivery(options.flow.done);
  if (options.resume && !options.replace) {
    PREPACK_TRY_ASSIGN(
        const std::optional<Manifest> done,
        FindFinishedRun(output, identity, options.part, checkpoint, threads, progress));
    if (done.has_value()) {
      PREPACK_TRY(delivery.Begin(output, identity));
      PREPACK_TRY(delivery.DeliverFolder(output, mark));
      return ReportOfDone(options, checkpoint, model, plan, *done);
    }
  }
  PREPACK_TRY_ASSIGN(OutputFolder folder,
                     OutputFolder::Create(output, options.replace,
                                          options.resume ? Leftovers::kKeep : Leftovers::kRemove));
  SourceFlow flow(options.flow, options.part, checkpoint, options.observer);
  PREPACK_TRY(delivery.Begin(output, identity));
  Conversion conversion(options, checkpoint, model, plan, std::move(identity), threads, flow,
                        delivery, progress);
  Status status = conversion.OpenShards(folder);
  if (status.ok()) status = conversion.FillShards();
  if (status.ok()) status = conversion.WriteRest();
  // Until then their paths lead into the hidden folder.
  if (status.ok()) status = delivery.Await(output.string());
  if (status.ok()) status = folder.Commit();
  if (status.ok()) status = delivery.DeliverFolder(output, mark);
  if (!status.ok()) return status;
  return conversion.Report();
}

}  // namespace prepack
