#ifndef PREPACK_INSPECT_BYTE_CONTENTS_H_
#define PREPACK_INSPECT_BYTE_CONTENTS_H_

// What a byte of a checkpoint or packed folder holds: the inverse of find_weight.h.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/inspect/opened_folder.h"

namespace prepack {

// A number, or several that are stored once, that has bits in the byte.
struct HeldNumber {
  uint64_t n = 0;                  // output channel
  uint64_t rows = 1;               // how many channels from n on share it
  std::optional<uint64_t> k = {};  // of a code, in the order of the checkpoint
  std::optional<uint64_t> g = {};  // of a scale or zero point
  uint32_t bit = 0;                // of the byte: the first that belongs to it,
  uint32_t bits = 8;               // and how many do
};

struct ByteContents {
  std::string file;
  uint64_t offset = 0;
  uint8_t byte = 0;
  // "header length", "header", "code", "scale", "zero point", "sum of codes", "padding", "bias",
  // "input scale", "input zero point", "input order"; "data" of a tensor that is none of these.
  std::string_view holds = {};
  std::optional<StoredTensor> tensor = {};
  std::vector<uint64_t> element = {};  // of the tensor: where the byte is in an array of its shape
  std::string module = {};             // that the tensor belongs to; may be empty
  std::string form = {};               // of the module: format or layout
  std::vector<HeldNumber> numbers = {};
};

// kUsage for a file that the folder does not have, or an offset behind its end.
Result<ByteContents> ReadByteContents(const OpenedFolder& folder, std::string_view file,
                                      uint64_t offset);

}  // namespace prepack

#endif  // PREPACK_INSPECT_BYTE_CONTENTS_H_
