#include "convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/cancellation.h"
#include "base/isa.h"
#include "base/parallel.h"
#include "base/version.h"
#include "container/json_writer.h"
#include "convert/manifest.h"
#include "convert/module_packer.h"
#include "convert/output_config.h"
#include "convert/output_hash.h"
#include "convert/output_place.h"
#include "convert/source_hash.h"
#include "convert/text_file.h"
#include "convert/work_list.h"
#include "io/output_folder.h"
#include "layouts/fingerprint.h"

namespace prepack {
namespace {

enum class TaskKind : uint8_t { kTiles, kStrips, kSmallParts, kCopy };

constexpr uint64_t kCopyBytes = 1 << 20;

// One conversion on its way. The steps are called in the order in which they stand here.
class Conversion : private ManifestRecords {
 public:
  Conversion(const ConvertOptions& options, const Checkpoint& checkpoint,
             const QuantizedModel& model, const Plan& plan, Isa isa, Progress& progress)
      : options_(options),
        checkpoint_(checkpoint),
        model_(model),
        plan_(plan),
        isa_(isa),
        threads_(ThreadCount(options.jobs)),
        progress_(progress) {}

  Status CreateShards(const std::filesystem::path& folder);
  Status FillShards();
  Status HashEverything();
  Status WriteSideFiles();
  Status WriteManifest();
  ConvertReport Report() const;

 private:
  Status RunTask(const WorkList<TaskKind>::Task& task, PanelBuffers& buffers);
  Status CopyRange(const CopiedTensorOutput& copied, uint64_t begin, uint64_t end,
                   std::vector<std::byte>& buffer);
  // For the manifest.
  void VisitModules(const ModuleVisitor& visit) const override;
  void VisitTensors(const TensorVisitor& visit) const override;
  TensorRecord RecordOf(const OutputSlot& slot) const;
  ModuleRecord RecordOf(const ModulePacker& packer, const PackedModuleOutput& output) const;
  void DescribeModules();
  Status WriteIndex(const std::string& name);
  Status RecordFile(const std::string& name);

  const ConvertOptions& options_;
  const Checkpoint& checkpoint_;
  const QuantizedModel& model_;
  const Plan& plan_;
  const Isa isa_;
  const unsigned threads_;
  Progress& progress_;

  std::filesystem::path folder_;
  OutputShards shards_;
  std::vector<SafetensorsWriter> writers_;
  std::vector<ModulePacker> packers_;  // one per packed module
  std::vector<ShardHashes> shard_hashes_;
  TensorHashes source_hashes_;
  Manifest manifest_;
};

Status Conversion::CreateShards(const std::filesystem::path& folder) {
  folder_ = folder;
  Result<OutputShards> shards = PlanOutputShards(checkpoint_, plan_, options_.shard_bytes);
  if (!shards.ok()) return shards.status();
  shards_ = *std::move(shards);
  if (Status status = CheckFreeSpace(folder, shards_.file_bytes); !status.ok()) return status;
  for (size_t i = 0; i < shards_.names.size(); ++i) {
    Result<SafetensorsWriter> writer =
        SafetensorsWriter::Create(folder / shards_.names[i], std::move(shards_.plans[i]));
    if (!writer.ok()) return writer.status();
    writers_.push_back(*std::move(writer));
  }
  return {};
}

Status Conversion::FillShards() {
  WorkList<TaskKind> work;
  for (const PackedModuleOutput& output : shards_.packed) {
    const ModulePacker& packer =
        packers_.emplace_back(checkpoint_, plan_.modules[output.module], output, writers_, isa_);
    const size_t unit = packers_.size() - 1;
    work.Add(TaskKind::kTiles, unit, packer.tiles(), 1);
    work.Add(TaskKind::kStrips, unit, packer.strips(), 1);
    work.Add(TaskKind::kSmallParts, unit, 1, 1);
  }
  for (size_t i = 0; i < shards_.copied.size(); ++i) {
    work.Add(TaskKind::kCopy, i, shards_.copied[i].source->bytes, kCopyBytes);
  }

  progress_.Begin("packing", plan_.source_bytes);
  std::vector<PanelBuffers> buffers(threads_);
  return ParallelFor(work.size(), threads_, [&](size_t index, unsigned worker) {
    if (CancellationRequested()) return Interrupted(options_.output.string());
    return RunTask(work.At(index), buffers[worker]);
  });
}

Status Conversion::RunTask(const WorkList<TaskKind>::Task& task, PanelBuffers& buffers) {
  const uint64_t count = task.end - task.begin;
  Status status;
  switch (task.kind) {
    case TaskKind::kTiles:
      status = packers_[task.unit].PackTile(task.begin, buffers);
      progress_.Add(buffers.packed.size());
      break;
    case TaskKind::kStrips:
      status = packers_[task.unit].PackStrip(task.begin, buffers);
      break;
    case TaskKind::kSmallParts:
      status = packers_[task.unit].PackSmallParts(buffers);
      break;
    case TaskKind::kCopy:
      status = CopyRange(shards_.copied[task.unit], task.begin, task.end, buffers.panel);
      progress_.Add(count);
      break;
  }
  return status;
}

Status Conversion::CopyRange(const CopiedTensorOutput& copied, uint64_t begin, uint64_t end,
                             std::vector<std::byte>& buffer) {
  buffer.resize(end - begin);
  if (Status status = checkpoint_.Read(*copied.source, begin, buffer); !status.ok()) return status;
  return writers_[copied.slot.shard].Write(copied.slot.index, begin, buffer);
}

Status Conversion::HashEverything() {
  progress_.Begin("hashing", shards_.file_bytes + plan_.source_bytes);
  shard_hashes_.resize(writers_.size());
  Status status = ParallelFor(writers_.size(), threads_, [&](size_t index, unsigned) {
    if (Status synced = writers_[index].Sync(); !synced.ok()) return synced;
    Result<ShardHashes> hashes =
        HashShard(writers_[index].file(), writers_[index].header(), progress_);
    if (!hashes.ok()) return hashes.status();
    shard_hashes_[index] = *std::move(hashes);
    return Status();
  });
  if (!status.ok()) return status;
  return HashTensors(checkpoint_, threads_, progress_, source_hashes_);
}

TensorRecord Conversion::RecordOf(const OutputSlot& slot) const {
  const SafetensorsHeader& header = writers_[slot.shard].header();
  const TensorInfo& tensor = header.tensors[slot.index];
  return {.tensor = tensor.name,
          .file = shards_.names[slot.shard],
          .offset = header.data_start + tensor.begin,
          .dtype = tensor.dtype,
          .shape = tensor.shape,
          .xxh3_128 = shard_hashes_[slot.shard].tensors[slot.index]};
}

ModuleRecord Conversion::RecordOf(const ModulePacker& packer,
                                  const PackedModuleOutput& output) const {
  const ModulePlan& plan = plan_.modules[output.module];
  ModuleRecord record;
  record.layout = plan.chosen->id;
  record.scheme = plan.request.scheme;
  record.n = plan.request.n;
  record.k = plan.request.k;
  record.stored_scale_dtype = plan.request.stored_scale_dtype;
  record.scale_rounding = ScaleRounding(*plan.chosen, plan.request);
  record.rounded_scales = packer.rounded_scales();
  record.weights_desc = plan.request.weights_desc;
  record.onednn = plan.onednn;
  record.source_xxh3_128 = SourceHash(checkpoint_, source_hashes_, plan.ReplacedTensors());
  for (size_t part = 0; part < plan.parts.size(); ++part) {
    record.parts.emplace(plan.parts[part].name, RecordOf(output.slots[part]));
  }
  return record;
}

void Conversion::VisitModules(const ModuleVisitor& visit) const {
  std::vector<size_t> order(shards_.packed.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // The modules of the plan are ascending by name.
  std::ranges::sort(order, {}, [this](size_t i) { return shards_.packed[i].module; });
  for (const size_t i : order) {
    const PackedModuleOutput& output = shards_.packed[i];
    visit(plan_.modules[output.module].linear->module(), RecordOf(packers_[i], output));
  }
}

void Conversion::VisitTensors(const TensorVisitor& visit) const {
  std::vector<const CopiedTensorOutput*> order;
  for (const CopiedTensorOutput& copied : shards_.copied) order.push_back(&copied);
  std::ranges::sort(order, {}, [](const CopiedTensorOutput* copied) -> const std::string& {
    return copied->source->name;
  });
  for (const CopiedTensorOutput* copied : order) visit(RecordOf(copied->slot));
}

void Conversion::DescribeModules() {
  for (const ModulePlan& module : plan_.modules) {
    const std::string& name = module.linear->module();
    if (module.chosen == nullptr) {
      manifest_.kept.emplace(name, module.WhyRejected());
      continue;
    }
    manifest_.layouts.try_emplace(
        std::string(module.chosen->id),
        LayoutRecord{module.chosen->version, std::string(module.chosen->fingerprint)});
    if (module.dequantized) manifest_.dequantized.emplace(name, module.WhyRejected());
  }
}

Status Conversion::WriteIndex(const std::string& name) {
  uint64_t total = 0;
  for (const SafetensorsWriter& writer : writers_) {
    for (const TensorInfo& tensor : writer.header().tensors) total += tensor.bytes();
  }
  Result<TextFile> file = TextFile::Create(folder_ / name);
  if (!file.ok()) return file.status();
  JsonWriter json([&file](std::string_view text) { file->Append(text); });
  json.BeginObject();
  json.Member("metadata", {{"total_size", total}});
  json.Key("weight_map");
  json.BeginObject();
  for (size_t shard = 0; shard < shards_.names.size(); ++shard) {
    for (const TensorInfo& tensor : writers_[shard].header().tensors) {
      json.MemberText(tensor.name, shards_.names[shard]);
    }
  }
  json.EndObject();
  json.EndObject();
  json.Flush();
  file->Append("\n");
  return file->Finish();
}

Status Conversion::RecordFile(const std::string& name) {
  const Result<File> file = File::OpenForRead(folder_ / name);
  if (!file.ok()) return file.status();
  Result<FileRecord> record = HashFile(*file, progress_);
  if (!record.ok()) return record.status();
  manifest_.files[name] = *std::move(record);
  return {};
}

Status Conversion::WriteSideFiles() {
  std::vector<std::string> names;
  for (const std::string& name : checkpoint_.side_files()) {
    if (Printable(name, name.size() + 1) != name) {
      return Malformed(fmt::format("file {}", name), "its name is no readable UTF-8")
          .Hint("Rename it, or move it out of the checkpoint");
    }
    Status status = CopyFile(checkpoint_.path() / name, folder_ / name);
    if (!status.ok()) return status;
    names.push_back(name);
  }
  if (shards_.names.size() > 1) {
    names.emplace_back("model.safetensors.index.json");
    if (Status status = WriteIndex(names.back()); !status.ok()) return status;
  }
  DescribeModules();
  manifest_.source_quantization_config = model_.quantization_config;
  manifest_.target = plan_.target->id;
  names.emplace_back("config.json");
  std::vector<PackedScheme> packed;
  for (const ModulePlan& module : plan_.modules) {
    if (module.chosen == nullptr) continue;
    packed.push_back({module.linear->module(), module.chosen->id, module.request.scheme});
  }
  Status status = WriteTextFile(
      folder_ / names.back(), OutputConfig(checkpoint_.config(), manifest_, packed).dump(2) + "\n");
  if (!status.ok()) return status;
  for (const std::string& name : names) {
    status = RecordFile(name);
    if (!status.ok()) return status;
  }
  return {};
}

Status Conversion::WriteManifest() {
  manifest_.prepack_version = kVersion;
  manifest_.activation_dtype = plan_.activation_dtype;
  manifest_.exact_scales = options_.plan.exact_scales;
  manifest_.source_format = model_.format;
  manifest_.source_fingerprint = SourceFingerprint(checkpoint_, source_hashes_);
  manifest_.source_path = PathToSource(options_.source, options_.output);
  for (size_t i = 0; i < writers_.size(); ++i) {
    manifest_.files[shards_.names[i]] = shard_hashes_[i].file;
  }
  return prepack::WriteManifest(folder_ / kManifestName, manifest_, *this);
}

ConvertReport Conversion::Report() const {
  ConvertReport report;
  report.target = manifest_.target;
  report.format = manifest_.source_format;
  report.packed_modules = shards_.packed.size();
  for (const ModulePlan& module : plan_.modules) {
    if (module.chosen != nullptr) ++report.layouts[std::string(module.chosen->id)];
  }
  report.kept = manifest_.kept;
  report.dequantized = manifest_.dequantized;
  for (const ModulePacker& packer : packers_) report.rounded_scales += packer.rounded_scales();
  report.copied_tensors = shards_.copied.size();
  report.source_bytes = plan_.source_bytes;
  report.output_bytes = shards_.file_bytes;
  report.shards = writers_.size();
  report.source_fingerprint = manifest_.source_fingerprint;
  report.findings = model_.findings;
  return report;
}

}  // namespace

Result<ConvertReport> Convert(const ConvertOptions& options, Progress& progress) {
  const Result<Isa> isa = ChooseIsa();
  if (!isa.ok()) return isa.status();
  if (Status status = CheckOutputPlace(options.source, options.output); !status.ok()) {
    return status;
  }
  const Result<Checkpoint> checkpoint = Checkpoint::Open(options.source);
  if (!checkpoint.ok()) return checkpoint.status();
  const Result<QuantizedModel> model = ReadQuantizedModel(*checkpoint);
  if (!model.ok()) return model.status();
  const Result<Plan> plan = MakePlan(*checkpoint, *model, options.plan);
  if (!plan.ok()) return plan.status();
  if (Status status = CheckPlan(*plan); !status.ok()) return status;

  Result<OutputFolder> folder = OutputFolder::Create(options.output, options.replace);
  if (!folder.ok()) return folder.status();
  Conversion conversion(options, *checkpoint, *model, *plan, *isa, progress);
  Status status = conversion.CreateShards(folder->path());
  if (status.ok()) status = conversion.FillShards();
  if (status.ok()) status = conversion.HashEverything();
  if (status.ok()) status = conversion.WriteSideFiles();
  if (status.ok()) status = conversion.WriteManifest();
  if (status.ok()) status = folder->Commit();
  if (!status.ok()) return status;
  return conversion.Report();
}

}  // namespace prepack
