#ifndef PREPACK_CONVERT_FINISH_FOLDER_H_
#define PREPACK_CONVERT_FINISH_FOLDER_H_

// The files of a packed folder that are neither shards nor carried over: written last, by convert
// and by merge.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/result.h"
#include "container/checkpoint.h"
#include "container/json.h"
#include "container/safetensors.h"
#include "convert/manifest.h"
#include "convert/output_config.h"

namespace prepack {

// A shard as the index lists it.
struct IndexedShard {
  std::string name;
  const SafetensorsHeader* header = nullptr;
};

// Can the tokenizer and the like be copied? How many bytes they have. To be asked before hours of
// work. A name that is no readable UTF-8 is kMalformed: the manifest could not say it.
Result<uint64_t> CheckSideFiles(const Checkpoint& checkpoint);
// Copies them; returns the names.
Result<std::vector<std::string>> CopySideFiles(const Checkpoint& checkpoint,
                                               const std::filesystem::path& folder);

// The xxh3-128 of files, by name.
using FileHashes = std::map<std::string, std::string>;
// Of the side files of the source.
Result<FileHashes> HashSideFiles(const Checkpoint& checkpoint, Progress& progress);
// Of those that the manifest of a packed folder lists: all but shards, index and config.json.
FileHashes SideFilesOf(const Manifest& manifest);

// OK when they are equal; else the error of AnotherSource, with the first file that differs.
Status CheckSameFiles(const FileHashes& found, const FileHashes& expected, std::string_view where);

// What the manifest and config.json list by the thousand.
struct PackedContents {
  const ManifestRecords& records;
  std::vector<PackedScheme> modules;
};

// Writes the index (of several shards), config.json (of the text of the source's) and the manifest.
// `side_files` are in the folder already; the manifest has all but `contents` and the files that
// are no shards.
Status FinishFolder(const std::filesystem::path& folder, const std::vector<IndexedShard>& shards,
                    const std::string& source_config, const std::vector<std::string>& side_files,
                    const PackedContents& contents, Progress& progress, Manifest& manifest);

}  // namespace prepack

#endif  // PREPACK_CONVERT_FINISH_FOLDER_H_
