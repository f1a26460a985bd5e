#ifndef PREPACK_LAYOUTS_LAYOUT_H_
#define PREPACK_LAYOUTS_LAYOUT_H_

// A layout is the exact bytes that one kernel reads. Each has one file in this folder, with its
// closed form, and one row in the table (table.h) that plan, convert, verify, `prepack targets`,
// tests, benchmarks and docs all use. The bytes of a layout never change under one (id, version).
//
// Packing goes strip by strip: some output channels, all input channels. A layout says where the
// packed bytes of a strip lie in each part: as `runs` runs of `run_bytes` bytes, `stride` apart.
// Strips are independent, so any thread can pack any of them. The codes of a strip come in panels,
// one or several along K (canonical/panel_shape.h). Unpacking is the exact inverse.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/isa.h"
#include "base/result.h"
#include "canonical/panel.h"
#include "canonical/scheme.h"

namespace prepack {

// The module to be packed and what the user wants of it.
struct PackRequest {
  Scheme scheme;
  uint64_t n = 0;
  uint64_t k = 0;
  DType activation_dtype = DType::kBF16;  // dtype of x and y at run time
  DType stored_scale_dtype = DType::kBF16;
  std::optional<DType> bias_dtype;  // none: the module has no bias
  bool reordered = false;           // the module has a k_order

  uint64_t groups() const { return CeilDiv(k, scheme.group_size); }
};

// Yes, or no with a reason: a sentence with numbers, e.g.
// "N = 2112 is not a multiple of 32: output channels must be a multiple of 32".
struct Eligibility {
  bool ok = true;
  std::string reason;

  static Eligibility Yes() { return {}; }
  static Eligibility No(std::string why) { return {false, std::move(why)}; }
};

enum class PartRole : uint8_t { kWeight, kScale, kZeroPoint };

// One tensor of a packed module. It is stored as "MODULE." + name.
struct PartSpec {
  PartRole role = PartRole::kWeight;
  std::string_view name;
  DType dtype = DType::kU8;
  std::vector<uint64_t> shape;
};

// Where the packed bytes of a strip lie inside a part: run r covers bytes
// [offset + r · stride, + run_bytes). The packed buffer of a strip holds the runs back to back.
struct Placement {
  uint64_t offset = 0;
  uint64_t run_bytes = 0;
  uint64_t runs = 1;
  uint64_t stride = 0;  // 0 when runs == 1

  uint64_t bytes() const { return run_bytes * runs; }
};

// The piece of a strip that is packed at a time: all of its rows by input channels [k0, k0 + cols).
// k0 is a multiple of kPanelColsMultiple, and so is cols unless it reaches the end of K.
struct StripPanel {
  uint64_t rows = 0;
  uint64_t k0 = 0;
  uint64_t cols = 0;
};

struct Layout {
  std::string_view id;           // "vllm-cpu/wna16"
  uint32_t version = 1;          // goes up when the bytes change
  std::string_view target;       // "vllm-cpu"
  std::string_view consumer;     // the op that reads the bytes
  std::string_view mirrors;      // project, version and files that define the layout
  std::string_view schemes;      // for people: "w4a16 symmetric and asymmetric"
  std::string_view constraints;  // for people, one line
  std::string_view isa;          // what the consumer's kernel needs at run time
  std::string_view fingerprint;  // xxh3-128 of the packed probe module, see fingerprint.h

  // May this module be packed? Reads nothing but the request.
  Eligibility (*eligible)(const PackRequest& request);
  // The tensors of the packed module. Like all functions below, requires eligible(request).ok.
  std::vector<PartSpec> (*parts)(const PackRequest& request);
  // Strips begin at multiples of this many output channels.
  uint64_t rows_multiple;
  // Where rows [n0, n0 + rows) of a part go. n0 is a multiple of rows_multiple.
  Placement (*place)(const PackRequest& request, PartRole role, uint64_t n0, uint64_t rows);

  // Packs a panel of codes (PanelBytes bytes) into its place in the strip (place().bytes() bytes).
  // unpack_codes is the inverse. The panels of a strip together write every byte of it.
  void (*pack_codes)(const PackRequest& request, Isa isa, const StripPanel& range,
                     std::span<const std::byte> panel, std::span<std::byte> packed);
  void (*unpack_codes)(const PackRequest& request, Isa isa, const StripPanel& range,
                       std::span<const std::byte> packed, std::span<std::byte> panel);

  // Packs scales [rows, G] f32 in the layout's scale dtype, rounded to nearest even, and back.
  // A finite scale that would become infinite or zero is kUnsupported; the message has its place
  // (counted from the start of the panel) and its value.
  Status (*pack_scales)(const PackRequest& request, uint64_t rows, std::span<const float> scales,
                        std::span<std::byte> packed);
  void (*unpack_scales)(const PackRequest& request, uint64_t rows,
                        std::span<const std::byte> packed, std::span<float> scales);

  // Packs zero points [rows, G] u8 and back. Called only when parts() lists a zero point.
  void (*pack_zero_points)(const PackRequest& request, uint64_t rows,
                           std::span<const uint8_t> zero_points, std::span<std::byte> packed);
  void (*unpack_zero_points)(const PackRequest& request, uint64_t rows,
                             std::span<const std::byte> packed, std::span<uint8_t> zero_points);
};

// The dtype that the scales are stored in by this layout for this request.
DType ScaleDType(const Layout& layout, const PackRequest& request);
// "none" when the stored scales fit without rounding, else e.g. "F32 to BF16, nearest even".
std::string ScaleRounding(DType stored, DType packed);

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_LAYOUT_H_
