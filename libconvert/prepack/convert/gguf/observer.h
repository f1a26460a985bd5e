#pragma once

// Looks at GGUF files while they are made, as long as what they are made of is here.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/convert/gguf/manifest.h"
#include "prepack/convert/gguf/pack_blocks.h"
#include "prepack/packed/conversion_observer.h"
#include "prepack/packed/run_identity.h"

namespace prepack::gguf {

// Some rows of a tensor that are in their file.
struct WrittenRows {
  std::string tensor;
  uint64_t first = 0;
  uint64_t rows = 0;
  Rounded rounded;
  bool is_here = true;  // is what they were made of here?
};

class FileObserver : public SourceObserver {
 public:
  // Before anything is written. `file` is the first of the files, which have their size and their
  // headers. The manifest has all but hashes and what is rounded. `notes` are of earlier runs.
  virtual Status Begins(const std::filesystem::path& file, Manifest manifest,
                        std::vector<MeasuredNote> notes) = 0;
  // What these rows were made of may go: an error if it was found bad, or if it has gone and no
  // note says what it was. Returns what a later run has to know of them.
  virtual Result<std::vector<MeasuredNote>> SourceMayGo(std::span<const WrittenRows> written) = 0;
};

}  // namespace prepack::gguf
