#ifndef PREPACK_CONVERT_PART_RECORD_H_
#define PREPACK_CONVERT_PART_RECORD_H_

// What a part of a conversion knows besides its shards, for `prepack merge`. In the folder of the
// part stand
//
//     prepack-part.json            this record
//     prepack-part-manifest.json   the manifest of its modules and tensors
//     shards                       none, when the part has nothing to do
//     tokenizer and the like       in part 1 only

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "convert/finish_folder.h"
#include "convert/manifest.h"
#include "convert/part.h"
#include "convert/run_identity.h"
#include "convert/source_hash.h"

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
// kUsage when the folder is no part; kMalformed when the record is damaged.
Result<PartRecord> ReadPartRecord(const std::filesystem::path& folder);
Result<Manifest> ReadPartManifest(const std::filesystem::path& folder);

}  // namespace prepack

#endif  // PREPACK_CONVERT_PART_RECORD_H_
