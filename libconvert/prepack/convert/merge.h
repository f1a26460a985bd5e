#pragma once

// What a part of a conversion knows besides its shards, for `prepack merge`. In the folder of the
// part stand
//
//     prepack-part.json            this record
//     prepack-part-manifest.json   the manifest of its modules and tensors
//     shards                       none, when the part has nothing to do
//     tokenizer and so on       in part 1 only

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/convert/finish_folder.h"
#include "prepack/packed/manifest.h"
#include "prepack/packed/run_identity.h"
#include "prepack/packed/source_identity.h"

namespace prepack {

struct PartRecord {
  RunIdentity identity;  // the same in all parts
  Part part;
  std::string source_config;            // text of config.json of the source
  SourceTensorLines source_tensors;     // that the part was made of
  SourceTensorLines witnessed_tensors;  // that it has read besides, see Witnesses
  uint64_t all_source_tensors = 0;      // how many all parts have together
  std::vector<std::string> side_files;  // that the part carries
  FileHashes source_files;              // of all side files of the source
};

Status WritePartRecord(const std::filesystem::path& folder, const PartRecord& record,
                       const Manifest& manifest, const ManifestRecords& records);
// kUsage if the folder is not a part; kMalformed if the record is damaged.
Result<PartRecord> ReadPartRecord(const std::filesystem::path& folder);
Result<Manifest> ReadPartManifest(const std::filesystem::path& folder);

// Puts the parts of a conversion (`prepack convert --part I/N`, see packed/run_identity.h)
// together. The shards are not copied: they get second names in the packed folder (hard links), and
// the parts are removed when it is there. Where the file system has no hard links, they are copied.
// The source is not needed, and no weights are: of a shard that is somewhere else, a file of
// headers (io/file.h) is enough, and the folder gets one.

struct MergeOptions {
  std::filesystem::path output;  // as given to convert; the parts lie beside it
  bool replace = false;          // an existing packed folder may be replaced
  bool keep_parts = false;       // do not remove the parts
};

// A shard of the output, and which one it was: "OUT.part-00001-of-00002/SHARD".
struct MergedFile {
  std::string file;
  std::string from;
};

struct MergeReport {
  std::string target;
  uint32_t parts = 0;
  size_t packed_modules = 0;
  std::map<std::string, size_t> layouts;  // layout id → modules
  size_t copied_tensors = 0;
  std::vector<MergedFile> shards;
  uint64_t output_bytes = 0;  // of all shards
  std::string source_fingerprint;
};

// kUsage if there are no parts, if some are missing, or if they belong to different conversions.
// Fails with nothing visible at the output path and with all parts in place.
Result<MergeReport> Merge(const MergeOptions& options, Progress& progress);

}  // namespace prepack
