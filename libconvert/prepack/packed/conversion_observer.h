#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/packed/manifest.h"
#include "prepack/packed/run_identity.h"

namespace prepack {

// What an observer has to know of a source that goes while it is converted.
struct MovingSource {
  bool goes = false;
  // What earlier runs have noted of modules and tensors whose source has gone.
  std::vector<MeasuredNote> notes = {};
};

// Looks at a source whose shards come and go.
class SourceObserver {
 public:
  SourceObserver() = default;
  SourceObserver(const SourceObserver&) = delete;
  SourceObserver& operator=(const SourceObserver&) = delete;
  virtual ~SourceObserver() = default;

  // A file of the source, by its number, is now here, or only its headers are. Between units.
  virtual Status SourceFileMoved(size_t file) = 0;
};

// Looks at an output while it is made, when what it is made of and what was written are still in
// the page cache. An error ends the conversion.
class ConversionObserver : public SourceObserver {
 public:
  // Before anything is packed. `folder`: where the shards are, as large as they will be. The
  // manifest has all but hashes, and what only is known in the end.
  virtual Status Begins(const std::filesystem::path& folder, Manifest manifest,
                        MovingSource source) = 0;
  // How many bytes of work, for the progress, it adds to those of the conversion.
  virtual uint64_t bytes() const = 0;
  // A module, or a tensor that passes through, has been written. From any thread.
  virtual Status ModuleIsWritten(const std::string& module) = 0;
  virtual Status TensorIsWritten(const std::string& tensor) = 0;
  // What these were made of may go: an error if that has not been judged, or was found bad. Returns
  // what a later run has to know of it.
  virtual Result<std::vector<MeasuredNote>> SourceMayGo() = 0;
};

}  // namespace prepack
