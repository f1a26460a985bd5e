#pragma once

// Weights of which only headers are here (io/file.h), brought when they are read. `verify --fetch`
// reads a share of a model, and nobody knows before which files that takes.

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/io/file.h"

namespace prepack {

class MissingFiles {
 public:
  // Brings the file of this plain name to `path`.
  using Fetch = std::function<Status(const std::string& name, const std::filesystem::path& path)>;

  static MissingFiles& OfProcess();

  // Before any file is read; empty: none is brought.
  void Bring(Fetch fetch) { fetch_ = std::move(fetch); }
  bool Can() const { return fetch_ != nullptr; }
  // The whole file, of which `headers` are here; it is there as long as the process. kMalformed if
  // what came has another size or header, and then it does not stay. From any thread; one file is
  // brought at a time.
  Result<const File*> Whole(const File& headers);

 private:
  Status FetchInto(const File& headers);

  Fetch fetch_;
  std::mutex mutex_;
  std::map<std::filesystem::path, File> files_;
};

}  // namespace prepack
