// Opens whatever the user named, checkpoint or packed folder, and finds the module in it; a fused
// module is found by the names of its members.

#include "prepack/inspect/opened_folder.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/convert/source.h"
#include "prepack/io/output_folder.h"
#include "prepack/packed/node_shares.h"
#include "prepack/packed/packed_model.h"
#include "prepack/packed/plain_modules.h"

namespace prepack {
namespace {

Status NoSuchQuantizedModule(std::string_view wanted, const std::vector<std::string>& names) {
  return Usage("module", "no quantized module has this name")
      .Found(wanted)
      .Hint(DidYouMean(wanted, names));
}

}  // namespace

Result<OpenedFolder> OpenedFolder::Open(const std::filesystem::path& path) {
  OpenedFolder opened;
  opened.path = path;
  GgufSource source;
  source.look = true;
  PREPACK_TRY_ASSIGN(Checkpoint checkpoint, OpenSource(path, source));
  opened.checkpoint = std::make_unique<Checkpoint>(std::move(checkpoint));
  std::error_code error;
  if (std::filesystem::exists(path / kManifestName, error)) {
    PREPACK_TRY_ASSIGN(PackedFolder packed, PackedFolder::Open(path));
    opened.packed = std::move(packed);
    return opened;
  }
  Result<QuantizedModel> model = opened.checkpoint->origin() != nullptr
                                     ? ReadSourceModel(*opened.checkpoint)
                                     : ExamineQuantizedModel(*opened.checkpoint);
  if (model.ok()) {
    opened.model = *std::move(model);
  } else {
    opened.unreadable = std::move(model).status();
  }
  return opened;
}

Result<PackedModuleName> FindPackedModule(const OpenedFolder& folder, std::string_view module) {
  std::vector<std::string> names;
  for (const auto& [name, record] : folder.packed->manifest().modules) {
    if (name == module) {
      return PackedModuleName{
          .name = &name, .record = &record, .channels = {.first = 0, .n = record.n}};
    }
    if (const auto channels = record.fused.ChannelsOf(module)) {
      return PackedModuleName{.name = &name, .record = &record, .channels = *channels};
    }
    names.push_back(name);
    for (const FusedMember& member : record.fused) names.push_back(member.module);
  }
  return NoSuchQuantizedModule(module, names);
}

Result<const QuantizedLinear*> FindSourceModule(const OpenedFolder& folder,
                                                std::string_view module) {
  if (!folder.model) return *folder.unreadable;
  if (const QuantizedLinear* linear = folder.model->Find(module)) return linear;
  std::vector<std::string> names;
  for (const auto& linear : folder.model->modules) names.emplace_back(linear->module());
  return NoSuchQuantizedModule(module, names);
}

Status CheckHasPlaces(const QuantizedLinear& linear) {
  if (linear.places() != nullptr) return {};
  return Unsupported(fmt::format("module {}", linear.module()),
                     "its weights are more than a code and a scale, so that none has a place")
      .Hint("--values shows them as numbers");
}

Result<std::optional<OpenedFolder>> OpenSource(const PackedFolder& packed,
                                               const std::filesystem::path& path) {
  const std::optional<std::filesystem::path> found =
      path.empty() ? RecordedSource(packed) : std::optional(path);
  if (!found) return std::optional<OpenedFolder>();
  PREPACK_TRY_ASSIGN(OpenedFolder opened, OpenedFolder::Open(*found));
  if (opened.model) {
    AddPlainAsPacked(packed.manifest(), *opened.checkpoint, *opened.model);
    CutAsPacked(packed.manifest(), *opened.model);
  }
  return std::optional(std::move(opened));
}

}  // namespace prepack
