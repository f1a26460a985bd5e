#pragma once

// What each target would make of a checkpoint: the plan of a conversion with no options, in
// figures.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/shared_value.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "prepack/model/scheme.h"
#include "prepack/packed/manifest.h"

namespace prepack {

// Modules that stay as they are stored, for one reason.
struct LeftModules {
  std::string why;
  std::string first;  // of them
  size_t modules = 0;
};

struct TargetUse {
  std::string target;
  size_t modules = 0;                     // quantized ones, packed or not
  size_t packed = 0;                      // of them
  std::map<std::string, size_t> layouts;  // → modules
  std::vector<LeftModules> left;          // most modules first
  uint64_t module_bytes = 0;              // of the quantized modules in the output
  uint64_t weights = 0;                   // of the same
  uint64_t output_bytes = 0;              // of all tensors of the output

  double BitsPerWeight() const;
};

// In the order of the targets; none for a checkpoint without quantized modules. From headers only.
std::vector<TargetUse> UseOfTargets(const Checkpoint& checkpoint, const QuantizedModel& model);

// What a checkpoint, a packed folder or a single .safetensors file holds. From headers, the
// configuration and the manifest: milliseconds, however large the weights are.

enum class FolderKind : uint8_t { kCheckpoint, kPacked, kSafetensorsFile };

std::string_view FolderKindName(FolderKind kind);  // "checkpoint", "packed folder", …

struct FileSummary {
  std::string name;
  uint64_t bytes = 0;
  size_t tensors = 0;
  uint64_t data_start = 0;  // bytes from the start of the file
};

// A quantized module, as stored or as packed. A view, as models have hundreds of thousands.
struct ModuleSummary {
  std::string_view module;
  SharedValue<Scheme> scheme;
  std::string_view layout;  // empty when not packed
  uint64_t n = 0;
  uint64_t k = 0;
  uint64_t bytes = 0;                              // of the tensors below
  std::span<const std::string_view> tensors = {};  // that the module is made of
  const FusedMembers* fused = nullptr;             // modules of the checkpoint in it; null: itself

  double BitsPerWeight() const;
};

// A module, and its output channels that are those of the one asked for: all, but for a module of
// the checkpoint that was fused with others.
struct FoundModule {
  const ModuleSummary* module = nullptr;
  ChannelRange channels = {};

  bool is_part() const { return channels.n != module->n; }
};

// What the manifest of a packed folder says about its origin.
struct PackedOrigin {
  std::string prepack_version;          // that made it
  std::string source_path;              // where the source was, from the folder; may be empty
  std::optional<HubOrigin> source_hub;  // the model of the hub that the source was
  std::string source_fingerprint;       // of all tensors of the source
  std::string activation_dtype;         // "bf16"
  std::string options;                  // of the conversion; empty: not recorded
};

struct InspectReport {
  std::string path;
  FolderKind kind = FolderKind::kCheckpoint;
  std::shared_ptr<const void> source;  // what tensors and modules are views of
  std::vector<FileSummary> files;
  std::vector<const StoredTensor*> tensors;  // ascending by name; `file` indexes `files`
  uint64_t tensor_bytes = 0;
  std::string format;                  // "compressed-tensors"; of the source when packed
  std::string target;                  // of a packed folder
  std::optional<PackedOrigin> origin;  // of a packed folder
  std::vector<ModuleSummary> modules;  // ascending by name
  std::vector<TargetUse> targets;      // of a checkpoint: what each would make of it
  std::vector<Finding> findings;
  // Why the quantized modules of a checkpoint could not be described; the rest of the report
  // stands.
  std::optional<Status> unreadable;

  // By its name, or by that of a module fused into it. Nothing if there is no such module.
  std::optional<FoundModule> FindModule(std::string_view name) const;
};

Result<InspectReport> Inspect(const std::filesystem::path& path);

// The report as one self-contained page (report/page.h): what the folder is and where it comes
// from, schemes, what each target would take, size and bits per weight along the depth of the
// model, and every module and tensor. Of very many of these, those that differ in numbers only
// share a row.
std::string InspectHtml(const InspectReport& report);

}  // namespace prepack
