#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/container/json.h"
#include "prepack/container/safetensors.h"
#include "prepack/convert/output_shards.h"
#include "prepack/convert/plan.h"
#include "prepack/convert/shard_filler.h"
#include "prepack/formats/format.h"
#include "prepack/packed/manifest.h"
#include "prepack/packed/output_config.h"

namespace prepack {

// The output may not be the source, lie inside it, or contain it: the source is never touched.
Status CheckOutputPlace(const std::filesystem::path& source, const std::filesystem::path& output);

// The path from the output, where it will be in the end, to the source, for the manifest; empty
// when there is none that a manifest can hold. Of a source that goes, it is the address of what its
// headers were fetched from, if `prepack-remote` has left that beside them.
std::string PathToSource(const std::filesystem::path& source, const std::filesystem::path& output,
                         bool goes = false);

// Is there room for `bytes` more on the file system of `folder`? Asked before the first byte is
// written, so that a conversion of hours does not end in a full disk.
Status CheckFreeSpace(const std::filesystem::path& folder, uint64_t bytes);

// What the files of these names take on the disk, of those that are there: a file's size less its
// holes.
uint64_t BytesOnDisk(const std::filesystem::path& folder, const std::vector<std::string>& names);

// What the manifest says of a conversion whose shards are filled.

class ManifestMaker : public ManifestRecords {
 public:
  // The arguments must live longer.
  ManifestMaker(const Plan& plan, const OutputShards& shards,
                const std::vector<SafetensorsWriter>& writers, const ShardFiller& filler)
      : plan_(plan), shards_(shards), writers_(writers), filler_(filler) {}

  // All but the modules and tensors, which come one by one; and what the caller adds: fingerprint
  // and path of the source, whether scales are exact, and the files that are no shards.
  Manifest Make(const QuantizedModel& model) const;
  void VisitModules(const ModuleVisitor& visit) const override;
  void VisitTensors(const TensorVisitor& visit) const override;
  // Ascending by module.
  std::vector<PackedScheme> PackedModules() const;

 private:
  std::vector<size_t> Units(bool copied) const;
  TensorRecord RecordOf(const OutputSlot& slot) const;
  ModuleRecord RecordOf(const ModulePlan& plan, size_t unit) const;
  void AddLayouts(Manifest& manifest) const;
  void AddReasons(Manifest& manifest) const;
  void AddShards(Manifest& manifest) const;

  const Plan& plan_;
  const OutputShards& shards_;
  const std::vector<SafetensorsWriter>& writers_;
  const ShardFiller& filler_;
};

// The files of a packed folder that are neither shards nor carried over: written last, by convert
// and by merge.

// A shard as the index lists it.
struct IndexedShard {
  std::string name;
  const SafetensorsHeader* header = nullptr;
};

// Can the tokenizer and so on be copied that the output of a target has, too? How many bytes they
// have. To be asked before hours of work. A name that is not readable UTF-8 is kMalformed: the
// manifest could not hold it.
Result<uint64_t> CheckSideFiles(const Checkpoint& checkpoint, std::string_view target);
// Copies them; returns the names.
Result<std::vector<std::string>> CopySideFiles(const Checkpoint& checkpoint,
                                               std::string_view target,
                                               const std::filesystem::path& folder);

// The xxh3-128 of files, by name.
using FileHashes = std::map<std::string, std::string>;
// The hashes of the source's side files.
Result<FileHashes> HashSideFiles(const Checkpoint& checkpoint, std::string_view target,
                                 Progress& progress);
// The hashes that the manifest of a packed folder has of them: of all files but shards, index and
// config.json.
FileHashes SideFilesOf(const Manifest& manifest);

// OK when they are equal; else the error of AnotherSource, with the first file that differs.
Status CheckSameFiles(const FileHashes& found, const FileHashes& expected, std::string_view where);

// What the manifest and config.json list by the thousand.
struct PackedContents {
  const ManifestRecords& records;
  std::vector<PackedScheme> modules;
};

// The index (of several shards), and config.json (of the text of the source's): with them, and with
// shards that are still empty, the folder of a checkpoint can be opened. Returns the names.
Result<std::vector<std::string>> WriteConfigs(const std::filesystem::path& folder,
                                              const std::vector<IndexedShard>& shards,
                                              const std::string& source_config,
                                              const PackedContents& contents,
                                              const Manifest& manifest);

// Writes these, in place of those that are there, and the manifest.
// `side_files` are in the folder already; the manifest has all but `contents` and the files that
// are no shards.
Status FinishFolder(const std::filesystem::path& folder, const std::vector<IndexedShard>& shards,
                    const std::string& source_config, const std::vector<std::string>& side_files,
                    const PackedContents& contents, Progress& progress, Manifest& manifest);

}  // namespace prepack
