#pragma once

// Where the numbers of a packed module lie in its parts, and which numbers a byte holds, found with
// the functions of the layout alone: codes by its closed form; scales and zero points, which have
// none, by packing strips that differ in known places and comparing the bytes.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/inspect/opened_folder.h"
#include "prepack/layouts/drawing.h"
#include "prepack/layouts/layout.h"

namespace prepack {

// Bits of a part: bit i of byte b is its bit 8·b + i.
struct PartBits {
  uint64_t bit = 0;
  uint32_t bits = 0;

  friend bool operator==(const PartBits&, const PartBits&) = default;
};

// A scale or zero point.
struct GroupPlace {
  uint64_t n = 0;
  uint64_t g = 0;

  friend bool operator==(const GroupPlace&, const GroupPlace&) = default;
};

// What is in a byte of the weight part.
struct WeightByte {
  std::vector<WeightPlace> weights;  // the lowest bits first
  // When there are none: the channel whose codes are summed up there; nothing: padding.
  std::optional<uint64_t> sum_of;
};

// The weight (n, j), j counted as the kernel does: after input_order where there is one.
PartBits WherePackedCode(const Layout& layout, const PackRequest& request, uint64_t n, uint64_t j);
// Which weights to look at for those that lie in a byte of the weight part: at least all of those,
// counted as the kernel does.
PanelRange PackedCodesNear(const Layout& layout, const PackRequest& request, uint64_t byte);
WeightByte WeightsAt(const Layout& layout, const PackRequest& request, uint64_t byte);

// `role` is kScale or kZeroPoint, a part of the module. Where values of several channels are stored
// once, the place of that one. No bits: the layout does not keep the value.
PartBits WherePackedValue(const Layout& layout, const PackRequest& request, PartRole role,
                          const GroupPlace& place);
// The values that a byte of the part holds bits of, the first of those that share it; none:
// padding.
std::vector<GroupPlace> ValuesAt(const Layout& layout, const PackRequest& request, PartRole role,
                                 uint64_t byte);

// The first bytes of a module's codes as a grid: which weight each nibble or byte holds.

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

// What a byte of a checkpoint or packed folder holds: the inverse of find_weight.h.

// A number, or several that are stored once, that has bits in the byte.
struct HeldNumber {
  uint64_t n = 0;                  // output channel
  uint64_t rows = 1;               // how many channels from n on share it
  std::optional<uint64_t> k = {};  // of a code, in the order of the checkpoint
  std::optional<uint64_t> g = {};  // of a scale or zero point
  uint32_t bit = 0;                // of the byte: the first that belongs to it,
  uint32_t bits = 8;               // and how many do
};

// A tensor, for longer than its checkpoint is open.
struct NamedTensor {
  std::string name;
  DType dtype = DType::kU8;
  TensorShape shape;
  uint64_t offset = 0;  // bytes from the start of its file
};

struct ByteContents {
  std::string file;
  uint64_t offset = 0;
  uint8_t byte = 0;
  // "header length", "header", "code", "scale", "zero point", "sum of codes", "padding", "bias",
  // "input scale", "input zero point", "input order"; "data" of a tensor that is none of these.
  std::string_view holds = {};
  std::optional<NamedTensor> tensor = {};
  std::vector<uint64_t> element = {};  // of the tensor: where the byte is in an array of its shape
  std::string module = {};             // that the tensor belongs to; may be empty
  std::string form = {};               // of the module: format or layout
  std::vector<HeldNumber> numbers = {};
};

// kUsage for a file that the folder does not have, or an offset behind its end.
Result<ByteContents> ReadByteContents(const OpenedFolder& folder, std::string_view file,
                                      uint64_t offset);

}  // namespace prepack
