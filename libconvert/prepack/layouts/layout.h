#pragma once

// A layout is the exact bytes that one kernel reads. Each has one file in this folder, with its
// closed form, and one row in the table (table.h) that plan, convert, verify, `prepack targets`,
// tests, benchmarks and docs all use. The bytes of a layout never change under one (id, version).
//
// Weights are packed tile by tile: some output channels by all input channels, or all output
// channels by some input channels where the packed form puts those side by side. A layout says
// where the packed bytes of a tile lie in the part. Tiles are independent, so any thread can pack
// any of them. The codes of a tile come in panels (model/panel_shape.h), in ascending order.
// Scales and zero points go by strips of output channels. Unpacking is the exact inverse.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/cpu_features.h"
#include "prepack/base/dtype.h"
#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/layouts/blocked_desc.h"
#include "prepack/model/panel.h"
#include "prepack/model/panel_shape.h"
#include "prepack/model/scheme.h"

namespace prepack {

// What only the numbers of a module tell, where a checkpoint format has no place for some of them.
struct ValueFacts {
  bool has_zero_of_zero = false;          // a zero point is 0
  bool has_zero_beyond = false;           // a zero point is 2^bits, which is no code
  bool has_scale_beyond_half = false;     // F16 does not hold a scale exactly
  bool lacks_input_global_scale = false;  // activations of 4 bits without their global scale

  friend bool operator==(const ValueFacts&, const ValueFacts&) = default;
};

// Why a mixture is not packed though one of its experts could be. Known where layouts take whole
// mixtures only.
enum class MixtureFault : uint8_t {
  kNone,
  kIncomplete,   // another expert of the layer is missing, or cannot be packed
  kOtherLayout,  // other experts of the model get another layout of whole mixtures
};

// The module to be packed and what the user wants of it.
struct PackRequest {
  Scheme scheme;  // of the weights as stored, and of the activations as the kernel is to have them
  uint64_t n = 0;
  uint64_t k = 0;
  DType activation_dtype = DType::kBF16;  // dtype of x and y at run time
  DType stored_scale_dtype = DType::kBF16;
  std::optional<DType> bias_dtype = {};  // as stored; none: the module has no bias
  bool reordered = false;     // the module has a k_order, which the consumer applies to x
  bool inputs_first = false;  // the model stores the plain weight of the module [K, N]
  bool embedding = false;     // rows of the weight are looked up, and nothing is multiplied
  ValueFacts facts = {};      // known where a checkpoint is made
  bool unnamed = false;       // the runtime has no name for it, see Layout::is_named
  MixtureFault mixture_fault = MixtureFault::kNone;  // of an expert
  // How many experts of a mixture it holds, which an op of its own runs; 0: it is no expert. Those
  // of more than one are stacked: N counts the output channels of all, expert after expert.
  uint64_t experts = 0;
  // Scales as exact as a part can hold them; else as the runtime itself would hold them.
  bool exact_scales = false;
  // Of layouts whose form a primitive decides: what it asked for. None: the layout's default.
  std::optional<BlockedDesc> weights_desc = {};

  uint64_t groups() const { return CeilDiv(k, scheme.group_size); }
  bool expert() const { return experts != 0; }
  bool stacked() const { return experts > 1; }
  uint64_t n_of_expert() const { return stacked() ? n / experts : n; }

  friend bool operator==(const PackRequest&, const PackRequest&) = default;
};

// Yes, or no with a reason: a sentence with numbers, e.g.
// "N = 2112 is not a multiple of 32: output channels must be a multiple of 32".
struct Eligibility {
  bool ok = true;
  std::string reason;
  // The layout is for another kind of weights altogether, which is hardly worth a sentence.
  bool other_weights = false;
  // The two halves of the reason where it compares the codes: what they are, and what the kernel
  // reads. Else empty.
  std::string codes = {};
  std::string kernel_reads = {};

  static Eligibility Yes() { return {}; }
  static Eligibility No(std::string why) { return {false, std::move(why)}; }
};

enum class PartRole : uint8_t {
  kWeight,
  kScale,
  kZeroPoint,
  // The same in every layout that has them:
  kWeightSum,       // f32 [N]: (sum of the codes of a channel) · scale, for asymmetric activations
  kInputScale,      // f32 [1], of static activations
  kInputZeroPoint,  // i32 [1], of static asymmetric activations
  kInputOrder,      // i32 [K]: the consumer multiplies with x[input_order[j]] in place of x[j]
  kBias,            // [N]
  // Of layouts that are checkpoints:
  kGlobalScale,       // f32, one number, of scales that are quantized, too
  kInputGlobalScale,  // the same of activations
  kWeightShape,       // i64 [2]: N, K
  kGroupIndex,        // i32 [K]: the group of each input channel
};

// How a part goes together with that of a module beside it (the rows of q, k and v; the halves of a
// tensor-parallel module): seen as an array of shape `view`, it is cut along one axis.
struct Division {
  enum class Kind : uint8_t {
    kAlong,  // along `axis`: `unit` channels take one or several indices of it
    kWhole,  // each piece holds all of it
    kNever,  // the pieces are not in it
  };
  Kind kind = Kind::kNever;
  size_t axis = 0;
  uint64_t unit = 1;

  static constexpr Division Along(size_t axis, uint64_t unit) {
    return {.kind = Kind::kAlong, .axis = axis, .unit = unit};
  }
  static constexpr Division Whole() { return {.kind = Kind::kWhole}; }
  static constexpr Division Never() { return {}; }
};

// One tensor of a packed module. It is stored as "MODULE." + name.
struct PartSpec {
  PartRole role = PartRole::kWeight;
  std::string_view name;
  DType dtype = DType::kU8;
  std::vector<uint64_t> shape;
  Division by_outputs = Division::Never();  // pieces of N; Never: none without packing again
  Division by_inputs = Division::Never();   // pieces of K
  std::vector<uint64_t> view = {};          // of the divisions; empty: the shape
};

// What a row of the table says about the modules that a layout takes: a value that is the same for
// all, or one for each module with a text for people. So what docs and `prepack targets` say about
// shapes and dtypes is what the code does.
template <typename T>
class Symbol {
 public:
  using Function = T (*)(const PackRequest& request);

  constexpr Symbol() = default;
  constexpr Symbol(T value) : value_(value) {}
  constexpr Symbol(std::string_view text, Function function) : text_(text), function_(function) {}

  T Of(const PackRequest& request) const {
    return function_ == nullptr ? value_ : function_(request);
  }
  // Empty for a value that is the same for all modules.
  constexpr std::string_view text() const { return text_; }
  constexpr T value() const { return value_; }

 private:
  T value_ = {};
  std::string_view text_ = {};
  Function function_ = nullptr;
};

using Extent = Symbol<uint64_t>;  // "N/16"
using StoredDType = Symbol<DType>;
using Condition = Symbol<bool>;  // "asymmetric weights"

// Symbols that several layouts use; docs/layouts/README.md explains the letters.
namespace symbol {

inline constexpr Extent kN{"N", [](const PackRequest& r) { return r.n; }};
inline constexpr Extent kK{"K", [](const PackRequest& r) { return r.k; }};
inline constexpr Extent kG{"G", [](const PackRequest& r) { return r.groups(); }};

inline constexpr StoredDType kAsActivations{
    "dtype of the activations", [](const PackRequest& r) { return r.activation_dtype; }};
inline constexpr StoredDType kAsStored{"dtype of the source",
                                       [](const PackRequest& r) { return r.stored_scale_dtype; }};

inline constexpr Condition kAlways{true};
inline constexpr Condition kAsymmetricWeights{
    "asymmetric weights", [](const PackRequest& r) { return !r.scheme.symmetric; }};
inline constexpr Condition kScalesPerChannel{"scales per channel", [](const PackRequest& r) {
                                               return r.scheme.granularity == Granularity::kChannel;
                                             }};

inline constexpr Condition kStaticActivations{
    "static activations", [](const PackRequest& r) {
      const ActivationScheme& activations = r.scheme.activations;
      return activations.type != ActivationType::kNone && !activations.dynamic;
    }};
inline constexpr Condition kStaticAsymmetricActivations{
    "static asymmetric activations", [](const PackRequest& r) {
      return kStaticActivations.Of(r) && !r.scheme.activations.symmetric;
    }};

}  // namespace symbol

// Division of a part, in symbols.
struct DivisionRow {
  Division::Kind kind = Division::Kind::kNever;
  size_t axis = 0;
  Extent unit = uint64_t{1};
  bool by_groups = false;  // whole where there is one group, which is for all inputs

  static constexpr DivisionRow Along(size_t axis, Extent unit) {
    return {.kind = Division::Kind::kAlong, .axis = axis, .unit = unit};
  }
  // A group at a time.
  static constexpr DivisionRow AlongGroups(size_t axis) {
    return {.kind = Division::Kind::kAlong,
            .axis = axis,
            .unit = {"gs", [](const PackRequest& r) { return r.scheme.group_size; }},
            .by_groups = true};
  }
  static constexpr DivisionRow Whole() { return {.kind = Division::Kind::kWhole}; }
  static constexpr DivisionRow Never() { return {}; }
};

using Extents = FixedVector<Extent, 4>;

// A PartSpec in symbols.
struct PartRow {
  PartRole role = PartRole::kWeight;
  std::string_view name = "weight";
  StoredDType dtype = DType::kU8;
  Extents shape = {};
  DivisionRow by_outputs = DivisionRow::Never();
  DivisionRow by_inputs = DivisionRow::Never();
  Extents view = {};
  Condition when = symbol::kAlways;
};

inline constexpr uint64_t kParameterBlock = 32;  // output channels, of kBlocks
inline constexpr uint64_t kSquareInputs = 128;   // of kSquares

// How output channels and groups lie in a part of scales or zero points.
enum class ParameterOrder : uint8_t {
  kNone,      // the layout has no such part
  kChannels,  // [N]: one per output channel
  kGroups,    // [G, N]
  kBlocks,    // [N/32, G, 32], for kernels that take 32 output channels at a time
  kSquares,   // [⌈N/r⌉, ⌈K/128⌉], one per block; [N] where a channel has one
  kRows,      // [⌈N/r⌉, G]: as the scheme has them, none repeated
  kInWeight,  // no part of their own: the weight holds them between the codes, and the bias, too
};

// Packed bytes that lie side by side at regular distances: run i covers bytes
// [offset + i · stride, + bytes) of a part.
struct Runs {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t count = 1;
  uint64_t stride = 0;  // 0 when count == 1

  // Do all runs touch?
  bool IsOnePiece() const { return count == 1 || stride == bytes; }
  friend bool operator==(const Runs&, const Runs&) = default;
};

// Where the packed bytes of a tile or strip lie inside a part. The packed buffer holds the runs
// back to back, in this order.
using Placement = FixedVector<Runs, 3>;  // a weight, and two kinds of sums

uint64_t PlacedBytes(const Placement& placement);

struct ScaleRow {
  ParameterOrder order = ParameterOrder::kNone;
  StoredDType value = DType::kF32;   // what scales are rounded to, nearest even; F8_E8M0 holds
                                     // powers of two, and a scale must be one
  StoredDType stored = DType::kF32;  // as what they are stored then
  // The shapes that they are stored in, one for each granularity; empty: those that follow from the
  // order.
  std::span<const PartRow> parts = {};
  // The scales are quantized, too: they are those of the source under their global scale, which is
  // a part of its own and divides or multiplies.
  bool two_levels = false;
  bool global_divides = false;
  // What scales are multiplied by before they are stored: a power of two; null: by nothing.
  float (*factor)(const PackRequest& request) = nullptr;
  // Of kInWeight: where those of output channels [n0, n0 + rows) lie in the weight, [G, rows]; n0
  // is a multiple of cut().strip_rows, and there are at most so many.
  Placement (*place_in_weight)(const PackRequest& request, uint64_t n0, uint64_t rows) = nullptr;
};

// How zero points are stored where the orders above do not say. Packing writes every bit of the
// strips' bytes, padding included.
struct ZeroPointForm {
  std::span<const PartRow> parts = {};
  uint8_t least = 0;  // that can be stored
  Placement (*place)(const PackRequest& request, uint64_t n0, uint64_t rows) = nullptr;
  // Zero points [rows, G].
  void (*pack)(const PackRequest& request, uint64_t rows, std::span<const uint8_t> zero_points,
               std::span<std::byte> packed) = nullptr;
  void (*unpack)(const PackRequest& request, uint64_t rows, std::span<const std::byte> packed,
                 std::span<uint8_t> zero_points) = nullptr;
};

struct ZeroPointRow {
  ParameterOrder order = ParameterOrder::kNone;
  DType dtype = DType::kU8;
  uint32_t bits = 8;  // of a zero point: 4 or 8; that of a lower channel in the lower bits
  Condition when = symbol::kAsymmetricWeights;
  const ZeroPointForm* form = nullptr;  // in place of the above
};

// Which scales a kernel multiplies with as they are, whatever the code.
struct ScaleLimits {
  float least = 0;
  float most = std::numeric_limits<float>::infinity();
  // Does the kernel read a weight of that code under a scale beyond the limits as another number?
  // Null: there are no limits.
  bool (*misreads)(float scale, uint8_t code) = nullptr;
};

// A signed code that the kernel reads as another number. A module with one is refused while it is
// packed, because finding out earlier would take reading all of it.
struct MisreadCode {
  int code = 0;
  std::string_view how = {};       // "as … where …"
  std::string_view expected = {};  // the codes that are read right
};

// Sums of weights per channel for activations with zero points, see PackScaledSums.
struct WeightSumRow {
  std::string_view name = {};  // empty: the layout has none
  Condition when = false;
};

// Calls visit(offset in the part, bytes) for the packed buffer piece by piece, in its order; runs
// that touch are one piece. Stops at the first status that is not OK.
template <typename Visit>
Status ForPieces(const Placement& placement, Visit visit) {
  for (const Runs& runs : placement) {
    const bool whole = runs.IsOnePiece();
    const uint64_t bytes = whole ? runs.bytes * runs.count : runs.bytes;
    for (uint64_t run = 0; run < (whole ? 1 : runs.count); ++run) {
      PREPACK_TRY(visit(runs.offset + run * runs.stride, bytes));
    }
  }
  return {};
}

// One call of pack_codes or unpack_codes.
struct PackJob {
  const PackRequest& request;
  PanelRange tile;   // what `packed` holds
  PanelRange panel;  // the piece of it that `codes` holds
  // [tile.rows, G]; given to layouts with codes_need_zero_points, else empty.
  std::span<const uint8_t> zero_points = {};
  // [tile.rows, G] as the source has them, and [tile.rows] or none; given to layouts whose weight
  // holds scales and bias.
  std::span<const float> scales = {};
  std::span<const float> bias = {};
};

struct Layout {
  std::string_view id = {};           // "vllm-cpu/wna16"
  uint32_t version = 1;               // goes up when the bytes change
  std::string_view target = {};       // "vllm-cpu"; kAnyTarget: of every target
  std::string_view consumer = {};     // the op that reads the bytes
  std::string_view mirrors = {};      // project, version and files that define the layout
  std::string_view schemes = {};      // for people: "w4a16 symmetric and asymmetric"
  std::string_view constraints = {};  // for people, one line
  std::string_view isa = {};          // what the consumer's kernel needs at run time
  // The same in symbols: what it does not run without, runs worse without, does not run with.
  CpuFeatures needs = {};
  CpuFeatures wants = {};
  CpuFeatures excludes = {};
  // Has its library only a slow reference implementation without what it wants?
  bool reference_without_wants = false;
  std::string_view address = {};      // the closed form of weight_bit, for people
  std::string_view notes = {};        // what else a user must know; may be empty
  std::string_view fingerprint = {};  // xxh3-128 of the packed probe modules, see fingerprint.h
  bool offered = true;                // false: known, tested and documented, but never chosen
  bool for_dequantized = false;       // takes bf16 weights, which modules become on demand
  bool inputs_first = false;      // takes only modules whose plain weight the model stores [K, N]
  bool takes_embeddings = false;  // what looks rows up reads it, too
  bool for_experts = false;       // takes only experts of a mixture
  // The runtime wants all experts of a layer, or none, and those of all layers in one layout.
  bool whole_mixtures = false;
  // Does the runtime's op for experts read those of a layer as one tensor per part? It is what the
  // experts are packed to one by one, one after another.
  bool stacks_experts = false;
  // Has the runtime an op that runs experts in this layout?
  Condition expert_op = symbol::kAlways;
  bool cuts_fractions = false;  // the quantizer of activations, where others round to the nearest
  bool static_activations = false;  // takes what the checkpoint says of the scales of activations
  bool by_primitive = false;  // the consumer is a primitive of oneDNN, which `verify` runs, too
  // A checkpoint format: what libraries read that know it, and no kernel. Codes keep the order of
  // the model's input channels, scales and biases their dtype, activations their scheme.
  bool checkpoint = false;
  std::span<const PartRow> side_parts = {};  // of a checkpoint: what it stores besides

  // May a module that is no stack be packed? Reads nothing but the request.
  Eligibility (*eligible)(const PackRequest& request) = nullptr;
  // The same for any module.
  Eligibility Takes(const PackRequest& request) const;

  // The parts. Like all functions below, their symbols require Takes(request).ok.
  PartRow weight = {};
  ScaleRow scales = {};
  ScaleLimits scale_limits = {};
  std::optional<MisreadCode> misread_code = {};
  ZeroPointRow zero_points = {};
  WeightSumRow weight_sums = {};
  StoredDType bias = DType::kF32;  // of a checkpoint: as stored, whatever stands here
  // Has the runtime a name for the module? Null: for any.
  bool (*is_named)(std::string_view module) = nullptr;
  bool IsNamed(std::string_view module) const { return is_named == nullptr || is_named(module); }
  // The name of a part's tensor; null: MODULE.PART.
  std::string (*tensor_name)(std::string_view module, const PartSpec& part) = nullptr;
  std::string TensorName(std::string_view module, const PartSpec& part) const;
  // For a layout whose form a primitive decides (PackRequest::weights_desc): sets how pieces of the
  // weight go together.
  void (*divide_weight)(const PackRequest& request, PartSpec& weight) = nullptr;
  bool FormIsAsked() const { return divide_weight != nullptr; }
  // The dtype of x.
  StoredDType input = symbol::kAsActivations;
  // The op has no place for the scales: the consumer multiplies its output with them.
  Condition consumer_scales = false;

  // How the weight is cut into tiles, see model/panel_shape.h.
  TileCut (*cut)(const PackRequest& request) = nullptr;
  // The closed form: the first bit of weight (n, k) in the weight part.
  uint64_t (*weight_bit)(const PackRequest& request, uint64_t n, uint64_t k) = nullptr;
  // Where a tile of the weight goes. Besides the tiles of cut(), every strip of whole output
  // channels (n0 and, but for the last, rows a multiple of cut().rows) is a tile.
  Placement (*place_weight)(const PackRequest& request, const PanelRange& tile) = nullptr;
  bool codes_need_zero_points = false;
  // Does the weight hold more than the codes: sums, padding? Of several runs of a tile the first
  // has the codes then.
  bool weight_has_extras = false;
  // Packs a panel of codes (PanelBytes bytes) into its place in the packed tile. The panels of a
  // tile come in ascending order, first along N, then along K, and together write every byte of it.
  // unpack_codes is the inverse, for any panel.
  void (*pack_codes)(const PackJob& job, std::span<const std::byte> codes,
                     std::span<std::byte> packed) = nullptr;
  void (*unpack_codes)(const PackJob& job, std::span<const std::byte> packed,
                       std::span<std::byte> codes) = nullptr;
  // The same as pack_codes, from codes by input channel [cols, rows / 2] as
  // QuantizedLinear::ReadColumns has them. Of layouts that have neighbouring output channels side
  // by side, too; else null.
  void (*pack_columns)(const PackJob& job, std::span<const std::byte> columns,
                       std::span<std::byte> packed) = nullptr;

  bool HasScales() const { return scales.order != ParameterOrder::kNone; }
  bool HoldsParameters() const { return scales.order == ParameterOrder::kInWeight; }
  // Every part that a module may have, and those of this module. Same order. Those of stacked
  // experts have the number of experts as their first dimension.
  std::vector<PartRow> PartRows() const;
  std::vector<PartSpec> Parts(const PackRequest& request) const;
};

inline constexpr std::string_view kAnyTarget = "*";

// One of the experts that are stacked, by itself; any other request as it is.
PackRequest OfOneExpert(const PackRequest& request);

// Makes the request one for the kind of modules that the layout takes, in what no scheme says.
void SetModuleKind(const Layout& layout, PackRequest& request);

// Where a strip of weights goes that are stored channel by channel, or block by block of channels,
// with nothing between: at the channels before it.
Placement PlaceChannels(const PackRequest& request, const PanelRange& tile);

// The part of that role, or nullptr.
const PartSpec* FindPart(const std::vector<PartSpec>& parts, PartRole role);

// Rows of scales [rows, G] to handle at a time, a multiple of the layout's strip_rows: about 1 MiB
// of f32, so that the runs that a transposing layout writes are long.
uint64_t StripRows(const Layout& layout, const PackRequest& request);

// "none" when the stored scales fit without rounding, else e.g. "F32 to BF16, nearest even".
std::string ScaleRounding(const Layout& layout, const PackRequest& request);

// What a tile is packed with besides codes.
struct TileParameters {
  std::vector<uint8_t> zero_points;
  std::vector<float> scales;
};

// Fills what pack_codes of a tile wants, and empties what the layout packs codes without.
Status ReadTileParameters(const Layout& layout, const QuantizedLinear& weights,
                          const PanelRange& tile, TileParameters& parameters);

}  // namespace prepack
