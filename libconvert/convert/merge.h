#ifndef PREPACK_CONVERT_MERGE_H_
#define PREPACK_CONVERT_MERGE_H_

// Puts the parts of a conversion (`prepack convert --part I/N`, see part.h) together. The shards
// are not copied: they get second names in the packed folder (hard links), and the parts are
// removed when it is there. Where the file system has no hard links, they are copied. The source is
// not needed.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "base/progress.h"
#include "base/result.h"

namespace prepack {

struct MergeOptions {
  std::filesystem::path output;  // as given to convert; the parts lie beside it
  bool replace = false;          // an existing packed folder may be replaced
  bool keep_parts = false;       // do not remove the parts
};

struct MergeReport {
  std::string target;
  uint32_t parts = 0;
  size_t packed_modules = 0;
  std::map<std::string, size_t> layouts;  // layout id → modules
  size_t copied_tensors = 0;
  size_t shards = 0;
  uint64_t output_bytes = 0;  // of all shards
  std::string source_fingerprint;
};

// kUsage when there are no parts, when some are missing, or when they are not of one conversion.
// Fails with nothing visible at the output path and with all parts in place.
Result<MergeReport> Merge(const MergeOptions& options, Progress& progress);

}  // namespace prepack

#endif  // PREPACK_CONVERT_MERGE_H_
