#ifndef PREPACK_INSPECT_FIND_WEIGHT_H_
#define PREPACK_INSPECT_FIND_WEIGHT_H_

// The first bytes of a module's codes as a grid: which weight each nibble or byte holds.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/inspect/opened_folder.h"
#include "prepack/layouts/drawing.h"

namespace prepack {

struct DrawnModule {
  std::string path;
  std::string form;    // the format, or the layout
  std::string module;  // there; a fused one of a packed folder
  std::string tensor;
  uint64_t first = 0;  // byte of the tensor that the drawing begins at: above 0 for stacked experts
  // Bits of a cell. Codes that do not fill bytes (3, 5, 6 or 7 bits) are drawn byte by byte, each
  // as the first weight that begins in it.
  uint32_t cell_bits = 4;
  std::vector<WeightCell> cells;  // input channels are in the order of the checkpoint
};

// At most `bytes` bytes of them.
Result<DrawnModule> DrawModule(const OpenedFolder& folder, std::string_view module, uint64_t bytes);

// Where one weight lies in the files, with the scale and the zero point that go with it.

// Bits [bit, bit + bits) counted from bit 0 of a byte of a file.
struct BitsInFile {
  std::string tensor;
  std::string file;
  uint64_t offset = 0;     // bytes from the start of the file
  uint64_t in_tensor = 0;  // bytes from the start of the tensor
  uint32_t bit = 0;        // below 8
  uint32_t bits = 0;
};

// A code, a scale or a zero point: its bits, the lowest first.
struct NumberInFile {
  std::string_view what;  // "code", "scale", "zero point", "product of scale and zero point"
  std::vector<BitsInFile> where;
  uint64_t stored = 0;  // those bits
  double value = 0;     // what they mean
};

struct FoundWeight {
  std::string path;
  std::string form;  // the format, or the layout: "gptq", "vllm-cpu/wna16"
  std::string module;
  uint64_t n = 0;  // in that module
  uint64_t k = 0;  // as asked for
  uint64_t position =
      0;  // where k comes when groups follow each other; k itself but in activation order
  uint64_t group = 0;
  std::vector<NumberInFile> numbers = {};
  double weight = 0;
};

// The weight (n, k) of a module, k in the order of the checkpoint. kUsage when it is not there.
Result<FoundWeight> FindWeight(const OpenedFolder& folder, std::string_view module, uint64_t n,
                               uint64_t k);

// The bits as a number, read from the files.
Result<uint64_t> ReadBits(const Checkpoint& checkpoint, const std::vector<BitsInFile>& where);

}  // namespace prepack

#endif  // PREPACK_INSPECT_FIND_WEIGHT_H_
