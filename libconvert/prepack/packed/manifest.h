#pragma once

// prepack.json: what was made from what, with checksums. Consumers rely on it; the schema is
// schemas/manifest.schema.json. A packed folder is a derived artifact: the manifest binds it to its
// source (by hash), to the layouts (by version and fingerprint) and to its own files.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/dtype.h"
#include "prepack/base/status.h"
#include "prepack/container/hub_cache.h"
#include "prepack/container/json.h"
#include "prepack/container/safetensors.h"
#include "prepack/formats/accepted.h"
#include "prepack/formats/format.h"
#include "prepack/layouts/blocked_desc.h"
#include "prepack/layouts/layout.h"
#include "prepack/model/scheme.h"
#include "prepack/packed/fused_members.h"
#include "prepack/packed/run_identity.h"

namespace prepack {

inline constexpr int kManifestVersion = 2;
// The size of a manifest of half a million modules; reading one takes up to four times that in
// memory.
inline constexpr uint64_t kMaxManifestBytes = 512ULL << 20;
inline constexpr size_t kMaxSourcePathBytes = 4096;  // longer ones cannot be opened (PATH_MAX)

// A tensor of the output and its bytes.
struct TensorRecord {
  std::string tensor;
  std::string file;
  uint64_t offset = 0;  // bytes from the start of the file
  DType dtype = DType::kU8;
  TensorShape shape;
  std::string xxh3_128;

  uint64_t bytes() const { return TensorBytes(dtype, shape).value_or(0); }
};

struct ModuleRecord {
  std::string layout;
  Scheme scheme;  // as packed: with the activations that the kernel is to have
  // What the source says of its activations, where that is something else.
  std::optional<ActivationScheme> source_activations;
  uint64_t n = 0;
  uint64_t k = 0;
  DType stored_scale_dtype = DType::kBF16;
  std::string scale_rounding;   // see ScaleRounding in layouts/layout.h
  uint64_t rounded_scales = 0;  // how many scales have another value than the source's
  // The form that was written, for layouts whose form a primitive decides.
  std::optional<BlockedDesc> weights_desc;
  std::optional<OneDnnOrigin> onednn;  // where a primitive on the converting machine decided
  FusedMembers fused;                  // what it was made of
  uint64_t experts = 0;                // of a mixture, stacked; 0: it is no stack
  bool act_order = false;              // of a checkpoint: its group index holds an activation order
  std::string source_xxh3_128;         // of the source tensors, see SourceHash
  std::map<std::string, TensorRecord> parts;  // by part name
};

// Layout, shape and scheme: modules of a kind differ in their numbers alone.
std::string KindOfModule(const ModuleRecord& record);

struct LayoutRecord {
  uint32_t version = 0;
  std::string fingerprint;
};

struct FileRecord {
  uint64_t bytes = 0;
  std::string xxh3_128;  // of all bytes; of a shard: ShardHash in convert/output_hash.h
};

struct Manifest {
  std::string prepack_version;
  std::string target;
  DType activation_dtype = DType::kBF16;
  bool exact_scales = false;       // see PackRequest
  AcceptedFindings accepted;       // of the source, which convert would have refused
  std::optional<RunIdentity> run;  // what the conversion was bound to; older prepacks did not say
  std::string source_format;
  std::string source_fingerprint;  // of all tensors of the source
  // From the packed folder to the source when it was packed, relative; empty: unknown. Only a hint
  // where to look: what the source is, the fingerprint says.
  std::string source_path;
  // The model of the hub that the source was, if it lay in a cache of the hub. As much a hint.
  std::optional<HubOrigin> source_hub;
  Json source_quantization_config;
  std::map<std::string, LayoutRecord> layouts;
  std::map<std::string, ModuleRecord, std::less<>> modules;
  std::map<std::string, std::string> kept;         // module → why it was left as stored
  std::map<std::string, std::string> dequantized;  // module → why no other layout took it
  std::vector<TensorRecord> tensors;               // passed through bit for bit; ascending by name
  std::map<std::string, FileRecord> files;         // every file of the folder but the manifest
};

// What a module's record says of the activations in the source: nothing if the kernel has the same,
// or the weights were dequantized.
std::optional<ActivationScheme> SourceActivations(const Scheme& packed,
                                                  const ActivationScheme& stored);

// The request that a module was packed by.
PackRequest RequestOf(const Manifest& manifest, const ModuleRecord& record);

// May this be the source path of a manifest: relative, in UTF-8, without control characters?
bool IsSourcePath(const std::string& path);

// What a manifest lists by the thousand, made one by one when it is written. The records of all
// modules at once would take more memory than all that a conversion needs otherwise.
class ManifestRecords {
 public:
  virtual ~ManifestRecords() = default;
  // Called with every module, ascending by name.
  using ModuleVisitor = std::function<void(const std::string& name, const ModuleRecord& module)>;
  virtual void VisitModules(const ModuleVisitor& visit) const = 0;
  // Called with every tensor that passes through, ascending by name.
  using TensorVisitor = std::function<void(const TensorRecord& tensor)>;
  virtual void VisitTensors(const TensorVisitor& visit) const = 0;
};

// Those that the manifest itself holds.
class OwnRecords : public ManifestRecords {
 public:
  // The manifest must live longer.
  explicit OwnRecords(const Manifest& manifest) : manifest_(manifest) {}
  void VisitModules(const ModuleVisitor& visit) const override;
  void VisitTensors(const TensorVisitor& visit) const override;

 private:
  const Manifest& manifest_;
};

// Writes prepack.json and flushes it. Its last member is the hash of everything before it. Modules
// and tensors are those of `records`; the manifest need not have any.
Status WriteManifest(const std::filesystem::path& path, const Manifest& manifest,
                     const ManifestRecords& records);
// The text of prepack.json with the modules and tensors of the manifest itself.
std::string ManifestText(const Manifest& manifest);

// Reads and checks the manifest of a packed folder. kMalformed when it is damaged or not of the
// form that the schema says; kUnsupported when a newer prepack wrote it.
Result<Manifest> ReadManifest(const std::filesystem::path& folder);
// The same for a manifest under any name.
Result<Manifest> ReadManifestFile(const std::filesystem::path& path);

// A plain name: no path can leave the folder.
bool IsPlainFileName(const std::string& name);

// What stands between the hashed text of a manifest and its hash. Writer and reader share it.
inline constexpr std::string_view kManifestHashPrefix = ",\n  \"manifest_xxh3_128\": \"";

// What runtimes take a fused module for: its name says which layers it holds, and in which order
// their output channels follow each other. Nothing in a packed folder can change that.

// Names of the layers that a runtime looks for in a module of this name, in its order: of
// "model.layers.0.self_attn.qkv_proj" q_proj, k_proj and v_proj of the same parent. Empty: runtimes
// know no layers under the name.
std::vector<std::string> LayersByName(std::string_view module);

// The same of a stack of so many experts, expert after expert: one list for each way in which
// checkpoints store them. Of "model.layers.0.mlp.experts.gate_up_proj" these are
// experts.0.gate_proj, experts.0.up_proj, experts.1.gate_proj, …, and gate_up_proj.0,
// gate_up_proj.1, …
std::vector<std::vector<std::string>> ExpertsByName(std::string_view module, uint64_t experts);

// A packed folder may hold several modules of its source as one (`convert --fuse`). To be compared
// with it, the source is fused as runtimes expect it under the name of the whole, whatever the
// folder says of it.

// For each module of the manifest that the source has not, puts one in the place of those that its
// name stands for. Where the source lacks one of them, or they do not go together, it is left as it
// is: it then lacks the module. An error is one of reading the source.
Status FuseAsPacked(const Manifest& manifest, QuantizedModel& model);

}  // namespace prepack
