#ifndef PREPACK_INSPECT_WEIGHT_VALUES_H_
#define PREPACK_INSPECT_WEIGHT_VALUES_H_

// A few weights of a module, as numbers to look at.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "inspect/opened_folder.h"

namespace prepack {

enum class ValueKind : uint8_t {
  kDecoded,  // (code − zero point) · scale
  kCodes,    // as the canonical layout has them; signed ones below 0, FP8 and BF16 as their bits
  kBytes,    // the byte of the file that holds the first bit of the code
};

// "decoded", "codes" or "bytes".
std::string_view ValueKindName(ValueKind kind);

struct WeightValues {
  std::string module;
  std::string form;  // the format, or the layout
  PanelRange range;  // input channels are in the order of the checkpoint
  ValueKind kind = ValueKind::kDecoded;
  std::vector<double> values;  // [range.rows, range.cols]
};

// At most so many at a time: what people look at.
inline constexpr uint64_t kMostValues = 1ULL << 20;

// Rows and columns that reach beyond the module are cut; kUsage when nothing is left, or too much.
Result<WeightValues> ReadWeightValues(const OpenedFolder& folder, std::string_view module,
                                      const PanelRange& range, ValueKind kind);

}  // namespace prepack

#endif  // PREPACK_INSPECT_WEIGHT_VALUES_H_
