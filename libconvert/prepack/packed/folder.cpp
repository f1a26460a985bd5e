// Opens a packed folder and its modules. The manifest is not trusted here: every module must be one
// that this version's layouts take, with exactly the parts that its layout makes, inside the files.

#include "prepack/packed/folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/base/status.h"
#include "prepack/gguf/model.h"
#include "prepack/layouts/parameters.h"
#include "prepack/layouts/table.h"
#include "prepack/packed/manifest.h"
#include "prepack/packed/node_shares.h"

namespace prepack {

Result<PackedFolder> PackedFolder::Open(const std::filesystem::path& path) {
  PREPACK_TRY_ASSIGN(Manifest manifest, ReadManifest(path));
  return OpenUnfinished(path, std::move(manifest));
}

Result<PackedFolder> PackedFolder::OpenUnfinished(const std::filesystem::path& path,
                                                  Manifest manifest) {
  PackedFolder folder;
  folder.path_ = path;
  folder.manifest_ = std::move(manifest);
  PREPACK_TRY(folder.OpenFiles());
  return folder;
}

Status PackedFolder::OpenFiles() {
  for (const auto& [name, record] : manifest_.files) {
    std::error_code error;
    std::filesystem::path headers = path_ / name;
    headers += kHeadersSuffix;
    if (!std::filesystem::exists(path_ / name, error) && !std::filesystem::exists(headers, error))
      continue;
    PREPACK_TRY_ASSIGN(File file, File::OpenWeights(path_ / name));
    files_.insert_or_assign(name, std::move(file));
  }
  return {};
}

Status PackedFolder::Complete(const std::filesystem::path& path) {
  PREPACK_TRY_ASSIGN(Manifest manifest, ReadManifest(path));
  const auto same_name = [](const auto& a, const auto& b) { return a.first == b.first; };
  if (!std::ranges::equal(manifest.modules, manifest_.modules, same_name) ||
      !std::ranges::equal(manifest.tensors, manifest_.tensors, {}, &TensorRecord::tensor,
                          &TensorRecord::tensor)) {
    return Malformed(path.string(), "its modules and tensors are not those that were to be made");
  }
  // In their old places, where others refer to them.
  for (auto& [name, record] : manifest_.modules) record = std::move(manifest.modules.at(name));
  manifest.modules.swap(manifest_.modules);
  manifest_ = std::move(manifest);
  path_ = path;
  return OpenFiles();
}

const File* PackedFolder::FindFile(const std::string& name) const {
  const auto it = files_.find(name);
  return it == files_.end() ? nullptr : &it->second;
}

Result<const File*> PackedFolder::FileOf(const TensorRecord& tensor, uint64_t offset,
                                         uint64_t bytes) const {
  const std::optional<uint64_t> end = CheckedAdd(offset, bytes);
  if (!end || *end > tensor.bytes()) {
    return Malformed(fmt::format("{}: tensor {}", tensor.file, tensor.tensor),
                     "the manifest gives this part fewer bytes than its layout needs");
  }
  const File* file = FindFile(tensor.file);
  if (file == nullptr) return Malformed((path_ / tensor.file).string(), "the file is missing");
  return file;
}

Status PackedFolder::Read(const TensorRecord& tensor, uint64_t offset,
                          std::span<std::byte> out) const {
  PREPACK_TRY_ASSIGN(const File* file, FileOf(tensor, offset, out.size()));
  return file->ReadAt(tensor.offset + offset, out);
}

Status PackedFolder::VisitPiece(const TensorRecord& tensor, uint64_t offset, uint64_t bytes,
                                ByteVisitor work) const {
  PREPACK_TRY_ASSIGN(const File* file, FileOf(tensor, offset, bytes));
  return file->VisitAt(tensor.offset + offset, bytes, work);
}

void PackedFolder::MapTogether(const TensorRecord& tensor) const {
  const Result<const File*> file = FileOf(tensor, 0, tensor.bytes());
  if (file.ok()) (*file)->MapTogether(tensor.offset, tensor.bytes());
}

Result<PinnedBytes> PackedFolder::Pin(const TensorRecord& tensor) const {
  PREPACK_TRY_ASSIGN(const File* file, FileOf(tensor, 0, tensor.bytes()));
  return file->Pin(tensor.offset, tensor.bytes());
}

std::optional<std::filesystem::path> RecordedSource(const PackedFolder& folder) {
  const Manifest& manifest = folder.manifest();
  std::error_code error;
  if (!manifest.source_path.empty()) {
    std::filesystem::path path =
        std::filesystem::canonical(folder.path() / manifest.source_path, error);
    const bool is_there = std::filesystem::is_regular_file(path / "config.json", error) ||
                          (std::filesystem::is_regular_file(path, error) && gguf::IsGguf(path));
    if (!path.empty() && is_there) return path;
  }
  // The folder was moved, or the cache is another one: the model may be there all the same.
  const std::filesystem::path cache = HubCacheFolder();
  if (!manifest.source_hub || cache.empty()) return std::nullopt;
  const HubOrigin& hub = *manifest.source_hub;
  Result<std::filesystem::path> found =
      FindSnapshot(cache, {.name = hub.name, .revision = hub.commit});
  if (!found.ok()) return std::nullopt;
  return *std::move(found);
}

namespace {

// "a, b, c, …": a stack of experts has thousands.
std::string FirstOf(const std::vector<std::string>& names) {
  constexpr size_t kMost = 6;
  const auto shown = std::span(names).first(std::min(kMost, names.size()));
  return fmt::format("{}{}", fmt::join(shown, ", "),
                     names.size() > kMost ? fmt::format(", … ({} in all)", names.size()) : "");
}

// Runtimes tell by the name what a module is made from, and do not ask the manifest.
Status CheckFusedNames(const std::string& name, const ModuleRecord& record,
                       const std::string& where) {
  if (record.fused.empty()) return {};
  const auto is_found = [&](const std::vector<std::string>& expected) {
    return std::ranges::equal(record.fused, expected, {}, &FusedMember::module);
  };
  std::vector<std::vector<std::string>> expected = {LayersByName(name)};
  if (record.experts > 0) expected = ExpertsByName(name, record.experts);
  if (std::ranges::any_of(expected, is_found)) return {};
  std::vector<std::string> found;
  for (const FusedMember& member : record.fused) found.push_back(Printable(member.module));
  const bool one_layer = expected.empty() || expected.front().empty();
  return Malformed(where, "its members are not the layers that runtimes expect under this name")
      .Found(FirstOf(found))
      .Expected(one_layer ? "one layer" : FirstOf(expected.front()));
}

}  // namespace

Result<PackedModule> PackedModule::Open(const PackedFolder& folder, const std::string& name,
                                        const ModuleRecord& record) {
  const std::string where = fmt::format("module {}", name);
  PackedModule module;
  module.folder_ = &folder;
  module.name_ = &name;
  module.nodes_ = NodesOf(folder.manifest(), name);
  module.layout_ = FindLayout(record.layout);
  if (module.layout_ == nullptr) {
    return Unsupported(where, "this version does not know the layout").Found(record.layout);
  }
  if (!BelongsTo(*module.layout_, folder.manifest().target)) {
    return Malformed(where, fmt::format("layout {} does not belong to the target", record.layout))
        .Found(folder.manifest().target)
        .Expected(module.layout_->target);
  }
  const LayoutRecord& layout = folder.manifest().layouts.at(record.layout);
  if (layout.version != module.layout_->version) {
    return Unsupported(where, fmt::format("another version of layout {}", record.layout))
        .Found(fmt::format("{}", layout.version))
        .Expected(fmt::format("{}", module.layout_->version))
        .Hint("Convert the source again with this version of prepack");
  }
  PREPACK_TRY(CheckFusedNames(name, record, where));
  module.request_ = RequestOf(folder.manifest(), record);
  module.members_ = record.fused.All();
  if (module.members_.empty()) module.members_.push_back({name, record.n});
  for (const FusedMember& member : module.members_) module.member_ends_.Add(member.n);
  const Eligibility eligible = module.layout_->Takes(module.request_);
  if (!eligible.ok) {
    return Malformed(where, fmt::format("layout {} does not take this module: {}", record.layout,
                                        eligible.reason));
  }
  module.specs_ = module.layout_->Parts(module.request_);
  const std::vector<PartSpec>& specs = module.specs_;
  if (specs.size() != record.parts.size()) {
    return Malformed(where, fmt::format("its number of parts is not that of {}", record.layout))
        .Found(fmt::format("{}", record.parts.size()))
        .Expected(fmt::format("{}", specs.size()));
  }
  for (const PartSpec& spec : specs) {
    const auto part = record.parts.find(std::string(spec.name));
    if (part == record.parts.end()) {
      return Malformed(where, fmt::format("part {} is missing", spec.name));
    }
    if (part->second.tensor != module.layout_->TensorName(name, spec)) {
      return Malformed(where, fmt::format("part {} has the name of another tensor", spec.name))
          .Found(part->second.tensor)
          .Expected(module.layout_->TensorName(name, spec));
    }
    if (part->second.dtype != spec.dtype || part->second.shape != spec.shape) {
      return Malformed(where, fmt::format("part {} is not what {} makes", spec.name, record.layout))
          .Found(fmt::format("{} [{}]", DTypeName(part->second.dtype),
                             fmt::join(part->second.shape, ", ")))
          .Expected(fmt::format("{} [{}]", DTypeName(spec.dtype), fmt::join(spec.shape, ", ")));
    }
    module.parts_.emplace(spec.role, part->second);
  }
  return module;
}

PackedModule PackedModule::OneExpert(uint64_t expert) const {
  PackedModule one;
  one.folder_ = folder_;
  one.name_ = name_;
  one.layout_ = layout_;
  one.request_ = OfOneExpert(request_);
  one.specs_ = layout_->Parts(one.request_);
  one.expert_ = expert;
  const size_t members = members_.size() / request_.experts;
  for (size_t i = 0; i < members; ++i) {
    one.members_.push_back(members_[expert * members + i]);
    one.member_ends_.Add(one.members_.back().n);
  }
  for (const PartSpec& spec : one.specs_) {
    TensorRecord part = parts_.at(spec.role);
    part.shape = spec.shape;
    part.offset += expert * part.bytes();
    one.parts_.emplace(spec.role, std::move(part));
  }
  return one;
}

Status PackedModule::ReadPlaced(PartRole role, const Placement& placement,
                                PageBuffer& packed) const {
  packed.resize(PlacedBytes(placement));
  std::span<std::byte> left = packed;
  return ForPieces(placement, [&](uint64_t offset, uint64_t bytes) {
    Status status = ReadPart(role, offset, left.first(bytes));
    left = left.subspan(bytes);
    return status;
  });
}

Status PackedModule::ReadPart(PartRole role, uint64_t offset, std::span<std::byte> out) const {
  return folder_->Read(parts_.at(role), offset, out);
}

Status PackedModule::ReadWholePart(PartRole role, PageBuffer& out) const {
  out.clear();
  if (!parts_.contains(role)) return {};
  out.resize(parts_.at(role).bytes());
  return ReadPart(role, 0, out);
}

Status PackedModule::ReadTile(const PanelRange& tile, PageBuffer& packed) const {
  return ReadPlaced(PartRole::kWeight, layout_->place_weight(request_, tile), packed);
}

Status PackedModule::VisitTile(const PanelRange& tile, PageBuffer& packed,
                               FunctionRef<void(const VisitedTile& bytes)> work) const {
  const Placement placement = layout_->place_weight(request_, tile);
  const Runs& first = placement.front();
  if (first.IsOnePiece() && (placement.size() == 1 || layout_->weight_has_extras)) {
    Placement sums;
    for (size_t i = 1; i < placement.size(); ++i) sums.push_back(placement[i]);
    PREPACK_TRY(ReadPlaced(PartRole::kWeight, sums, packed));
    const uint64_t bytes = first.bytes * first.count;
    return folder_->VisitPiece(parts_.at(PartRole::kWeight), first.offset, bytes,
                               [&](const std::byte* mapped) {
                                 work({.codes = {mapped, bytes}, .sums = packed});
                               });
  }
  PREPACK_TRY(ReadPlaced(PartRole::kWeight, placement, packed));
  work({.codes = packed, .sums = {}});
  return {};
}

void PackedModule::UnpackPanel(const PanelRange& tile, const PanelRange& panel,
                               std::span<const std::byte> packed,
                               std::span<std::byte> codes) const {
  layout_->unpack_codes({.request = request_, .tile = tile, .panel = panel}, packed, codes);
}

Status PackedModule::ReadCodes(uint64_t n0, uint64_t rows, const InputSlab& slab,
                               PageBuffer& packed, std::span<std::byte> codes) const {
  const PanelRange wanted{.n0 = n0, .rows = rows, .k0 = slab.k0, .cols = slab.inputs};
  const TileCut cut = layout_->cut(request_);
  if (cut.by_inputs || slab.inputs == request_.k) {
    Status status = ReadTile(wanted, packed);
    if (status.ok()) UnpackPanel(wanted, wanted, packed, codes);
    return status;
  }
  // Strips hold all input channels, so take as few output channels as possible.
  const size_t row_bytes = PanelRowBytes(request_.scheme.code, slab.inputs);
  for (uint64_t row = 0; row < rows; row += cut.rows) {
    const uint64_t count = std::min(cut.rows, rows - row);
    const PanelRange strip{.n0 = n0 + row, .rows = count, .k0 = 0, .cols = request_.k};
    const PanelRange panel{.n0 = n0 + row, .rows = count, .k0 = slab.k0, .cols = slab.inputs};
    PREPACK_TRY(ReadTile(strip, packed));
    UnpackPanel(strip, panel, packed, codes.subspan(row * row_bytes, count * row_bytes));
  }
  return {};
}

Status PackedModule::ReadScales(uint64_t n0, uint64_t rows, PageBuffer& packed,
                                std::span<float> scales) const {
  if (layout_->HoldsParameters()) return ReadHeldScales(n0, rows, packed, scales);
  if (!parts_.contains(PartRole::kScale)) {
    std::ranges::fill(scales, 1.0F);
    return {};
  }
  return ForExpertRows(request_, n0, rows, [&](uint64_t first, uint64_t count) -> Status {
    PREPACK_TRY(ReadPlaced(PartRole::kScale,
                           PlaceParameters(*layout_, request_, PartRole::kScale, first, count),
                           packed));
    const std::span<float> out =
        scales.subspan((first - n0) * request_.groups(), count * request_.groups());
    if (!layout_->scales.two_levels) {
      UnpackScales(*layout_, request_, count, packed, out);
      return {};
    }
    GlobalScale global{.divides = layout_->scales.global_divides};
    PREPACK_TRY(
        ReadPart(PartRole::kGlobalScale, 0, std::as_writable_bytes(std::span(&global.value, 1))));
    UnpackScales(*layout_, request_, count, packed, out, global);
    return {};
  });
}

// The runs of a strip are short and near each other: what lies from the first to the last is read
// at once.
Status PackedModule::ReadHeldScales(uint64_t n0, uint64_t rows, PageBuffer& packed,
                                    std::span<float> scales) const {
  const uint64_t groups = request_.groups();
  const uint64_t strip = layout_->cut(request_).strip_rows;
  PageBuffer gathered;
  for (uint64_t row = 0; row < rows; row += strip) {
    const uint64_t count = std::min(strip, rows - row);
    const Placement placement =
        PlaceParameters(*layout_, request_, PartRole::kScale, n0 + row, count);
    const Runs& runs = placement.front();
    packed.resize((runs.count - 1) * runs.stride + runs.bytes);
    PREPACK_TRY(ReadPart(PartRole::kWeight, runs.offset, packed));
    gathered.resize(runs.bytes * runs.count);
    for (uint64_t run = 0; run < runs.count; ++run) {
      std::memcpy(&gathered[run * runs.bytes], &packed[run * runs.stride], runs.bytes);
    }
    UnpackScales(*layout_, request_, count, gathered, scales.subspan(row * groups, count * groups));
  }
  return {};
}

Status PackedModule::ReadZeroPoints(uint64_t n0, uint64_t rows, PageBuffer& packed,
                                    std::span<uint8_t> zero_points) const {
  if (!parts_.contains(PartRole::kZeroPoint)) {
    std::ranges::fill(zero_points, ZeroOfSymmetric(request_.scheme));
    return {};
  }
  return ForExpertRows(request_, n0, rows, [&](uint64_t first, uint64_t count) -> Status {
    PREPACK_TRY(ReadPlaced(PartRole::kZeroPoint,
                           PlaceParameters(*layout_, request_, PartRole::kZeroPoint, first, count),
                           packed));
    UnpackZeroPoints(
        *layout_, request_, count, packed,
        zero_points.subspan((first - n0) * request_.groups(), count * request_.groups()));
    return {};
  });
}

}  // namespace prepack
