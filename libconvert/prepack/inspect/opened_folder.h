#pragma once

// A checkpoint or packed folder, opened to look at single numbers in it.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "prepack/packed/folder.h"

namespace prepack {

struct OpenedFolder {
  std::filesystem::path path;
  std::unique_ptr<Checkpoint> checkpoint;  // the files and tensors, packed ones as well
  std::optional<QuantizedModel> model;     // of a checkpoint that could be read
  std::optional<PackedFolder> packed;      // of a packed folder
  std::optional<Status> unreadable;        // why there is neither

  static Result<OpenedFolder> Open(const std::filesystem::path& path);
};

// A module of a packed folder, and the output channels in it that were asked for: all, unless the
// module of the checkpoint was fused with others.
struct PackedModuleName {
  const std::string* name = nullptr;
  const ModuleRecord* record = nullptr;
  ChannelRange channels = {};
};

// kUsage, with the closest name, if there is no such module; the error of the folder if
// none could be read.
Result<PackedModuleName> FindPackedModule(const OpenedFolder& folder, std::string_view module);
Result<const QuantizedLinear*> FindSourceModule(const OpenedFolder& folder,
                                                std::string_view module);

// kUnsupported for a module whose weights have no bits of their own, as those of ggml's K types.
Status CheckHasPlaces(const QuantizedLinear& linear);

// The checkpoint that a packed folder was made from: `path`, or where the manifest says that it is.
// Nothing when it is not known or not there. Whether it is the very same is for `verify` to say.
Result<std::optional<OpenedFolder>> OpenSource(const PackedFolder& packed,
                                               const std::filesystem::path& path);

}  // namespace prepack
