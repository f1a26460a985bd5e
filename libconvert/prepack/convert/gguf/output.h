#pragma once

// Where a GGUF model goes: a file, or a folder of files as llama.cpp splits them. It appears whole
// or not at all, with its manifest.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/io/file.h"
#include "prepack/io/output_folder.h"
#include "prepack/io/output_lock.h"

namespace prepack::gguf {

class ModelOutput {
 public:
  // One file of that name. An existing one that is GGUF may be replaced. kUsage while another
  // process writes it.
  static Result<ModelOutput> OneFile(const std::filesystem::path& path, bool replace,
                                     Leftovers leftovers);
  // A new folder with so many files, named after it.
  static Result<ModelOutput> Split(const std::filesystem::path& folder, size_t count,
                                   Leftovers leftovers);

  ModelOutput(ModelOutput&& other) noexcept;
  ModelOutput& operator=(ModelOutput&&) = delete;
  ~ModelOutput();

  // Path of the writer's notes on what is finished, a file that the writer may create.
  std::filesystem::path journal_path() const;
  // Where the files lie until they are complete, and their names there.
  std::filesystem::path folder() const;
  const std::vector<std::string>& names() const { return names_; }
  // The files to write, which get these sizes. If the notes of an earlier run go on, those of its
  // files that have their size stay, and `is_new` says which do not. To be called once.
  Result<std::vector<File>> OpenFiles(const std::vector<uint64_t>& sizes, bool goes_on,
                                      std::vector<bool>& is_new);
  // When the files are on the disk.
  Status Commit(const std::string& manifest);

 private:
  ModelOutput() = default;

  OrderlyEnd orderly_end_;  // the first member: it outlives what is to be cleaned up
  OutputLock lock_;         // of one file; a folder has its own
  Leftovers leftovers_ = Leftovers::kRemove;
  std::filesystem::path final_;         // of one file
  std::filesystem::path partial_;       // the same, hidden; empty: it has its name
  std::optional<OutputFolder> folder_;  // of several
  std::vector<std::string> names_;      // in the folder
};

}  // namespace prepack::gguf
