#pragma once

// An output folder that appears whole or not at all.
//
// The files are written into a hidden sibling, `.NAME.prepack-partial`: a sibling, because rename
// is atomic only inside one file system. Commit flushes the folder, renames it to its final name
// and flushes the parent. Whatever happens before that leaves nothing under the final name.
//
//   error, exception, SIGINT, SIGTERM   the destructor removes the hidden folder, or leaves it for
//                                       the next run (Leftovers::kKeep)
//   SIGKILL, power loss                 the hidden folder stays; the next Create for the same
//                                       name finds that its lock is free and removes it, or goes on
//                                       with it
//   another prepack still writes there  Create refuses (the lock is held)
//
// The lock (output_lock.h) is on a second sibling, `.NAME.prepack-lock`. Not on the
// hidden folder itself: over NFS an exclusive flock needs a descriptor that is open for writing,
// and no folder can be. Not a file inside it: that would become part of the output.
//
// A third sibling, `.NAME.prepack-journal`, is for the writer's notes on what is finished; it lives
// and dies with the hidden folder.
//
// An existing output is refused unless `replace` is set; then it is exchanged with the new folder
// in one step and removed afterwards. Only a folder that holds a manifest (prepack.json) or a part,
// or nothing at all, is ever replaced: a mistyped path cannot destroy someone's data. Where the
// file system cannot exchange, the old output is first renamed to `.NAME.prepack-old`; if power is
// lost just then, the next Create puts it back.

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/io/output_lock.h"

namespace prepack {

// The file that marks a packed folder, and the one that marks a part of one.
inline constexpr std::string_view kManifestName = "prepack.json";
inline constexpr std::string_view kPartName = "prepack-part.json";

// How the notes of a run are called that is not complete, see HiddenSibling.
inline constexpr std::string_view kJournalSuffix = "prepack-journal";

// A folder's path so that it ends in the folder's name: "out/" and "out//" are "out".
std::filesystem::path WithoutTrailingSlashes(std::filesystem::path folder);

// What an unfinished run leaves in its hidden folder.
enum class Leftovers : uint8_t {
  kRemove,  // nothing, and what an earlier one left is removed, too
  kKeep,    // all of it, so that the next run can go on with it
};

class OutputFolder {
 public:
  // kUsage: `final_path` names no folder that could be made, exists and may not be replaced, or is
  // being written by another process. kSystem: its parent is missing or cannot be written to.
  static Result<OutputFolder> Create(const std::filesystem::path& final_path, bool replace,
                                     Leftovers leftovers = Leftovers::kRemove);

  OutputFolder(OutputFolder&& other) noexcept;
  OutputFolder& operator=(OutputFolder&& other) noexcept;
  ~OutputFolder();

  // Where to write; inside the hidden folder.
  const std::filesystem::path& path() const { return partial_path_; }
  // Path of the writer's notes, a file that the writer may create.
  std::filesystem::path journal_path() const;

  // Makes the folder appear under its final name. Every file must have been flushed. To be called
  // once; after a failure nothing has changed under the final name, unless the error says that the
  // new output is in place.
  Status Commit();

 private:
  OutputFolder(std::filesystem::path final_path, bool replace, Leftovers leftovers,
               OutputLock lock);
  std::filesystem::path Sibling(std::string_view suffix) const;
  Status PutOldBack();
  Status RemoveLeftovers();
  Status MoveIntoPlace();
  Status ReplaceInTwoSteps();
  void Discard() noexcept;

  OrderlyEnd orderly_end_;  // the first member, so that it outlives all that is to be cleaned up
  std::filesystem::path final_path_;
  std::filesystem::path partial_path_;
  bool replace_ = false;
  Leftovers leftovers_ = Leftovers::kRemove;
  OutputLock lock_;  // not held: moved from
};

}  // namespace prepack
