#ifndef PREPACK_TOOLS_INSPECT_PLACES_H_
#define PREPACK_TOOLS_INSPECT_PLACES_H_

// `prepack inspect --find` and `--at`: which bytes hold a weight, and what a byte holds.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "container/json.h"
#include "inspect/byte_contents.h"
#include "inspect/find_weight.h"
#include "inspect_sides.h"

namespace prepack::cli {

// What --find has found: the weight in the source, in the packed folder, or in both.
struct FoundSides {
  std::string module;  // as asked for
  uint64_t n = 0;
  uint64_t k = 0;
  Sides<FoundWeight> sides = {};
};

// Looks in the folder and, when it is a packed one, in its source: `source`, or the one that the
// manifest names, where that is there. `wanted` is MODULE N K.
Result<FoundSides> FindSides(const std::string& path, const std::string& source,
                             const std::vector<std::string>& wanted);
// `wanted` is FILE:OFFSET, the offset decimal or in hex with 0x.
Result<ByteContents> ContentsAt(const std::string& path, const std::string& wanted);

std::string FoundText(const FoundSides& found);
Json FoundJson(const std::string& path, const FoundSides& found);
std::string ContentsText(const ByteContents& contents);
Json ContentsJson(const std::string& path, const ByteContents& contents);

}  // namespace prepack::cli

#endif  // PREPACK_TOOLS_INSPECT_PLACES_H_
