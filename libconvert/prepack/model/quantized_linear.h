#pragma once

// The order of a module's input channels, which is 4·K bytes: too much to keep for every module of
// a large model. It is read when it is needed, and kept for as long as a thread works on the
// module.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/dtype.h"
#include "prepack/base/memory.h"
#include "prepack/base/shared_value.h"
#include "prepack/base/status.h"
#include "prepack/model/panel.h"
#include "prepack/model/scheme.h"

namespace prepack {

// A permutation of [0, K).
using InputOrder = std::vector<uint32_t>;
using SharedOrder = std::shared_ptr<const InputOrder>;

class KeptOrder {
 public:
  using Read = std::function<Result<InputOrder>()>;

  explicit KeptOrder(Read read) : read_(std::move(read)) {}

  // From any thread. Each thread keeps the last order that it got.
  Result<SharedOrder> Get() const;

 private:
  Read read_;
  mutable std::mutex mutex_;
  mutable std::weak_ptr<const InputOrder> order_;
};

// Where the numbers of a quantized module lie in its source: the addresses that a reader goes by,
// as closed forms. For people who look at bytes; readers move many codes at a time, and tests hold
// the two against each other.
//
// Bit i of byte b of a tensor is its bit 8·b + i. Output channels are called n, groups g. Input
// channels k are in the order of the checkpoint, whatever the module's k_order is.

struct BitRun {
  std::string_view tensor;
  uint64_t bit = 0;   // the first, from the start of the tensor
  uint32_t bits = 0;  // how many follow each other

  friend bool operator==(const BitRun&, const BitRun&) = default;
};

// The bits of one number, the lowest first. Several runs where it crosses words that do not follow
// each other, or is stored in bit planes.
using StoredBits = FixedVector<BitRun, 3>;

class SourcePlaces {
 public:
  virtual ~SourcePlaces() = default;

  virtual StoredBits WhereCode(uint64_t n, uint64_t k) const = 0;
  virtual StoredBits WhereScale(uint64_t n, uint64_t g) const = 0;
  // No bits where no zero point is stored. Where a product with it is, the place of that.
  virtual StoredBits WhereZeroPoint(uint64_t n, uint64_t g) const = 0;
  // Which codes to look at for those that lie in a byte of the tensor of codes: at least all of
  // those; none for a byte that belongs to another module.
  virtual PanelRange CodesNear(uint64_t byte) const = 0;
};

// One quantized linear layer in the canonical layout: y = x · Wᵀ + bias with
//
//     W[n, k] = (code[n, j] − zero_point[n, j / group_size]) · scale[n, j / group_size]
//     k = k_order[j], or j if there is no k_order
//
// codes [N, K], scales f32 [N, G] (exact, but for reciprocals of stored divisors), zero points u8
// [N, G] in the domain of the codes. G = ⌈K / group_size⌉: a last group may be short. Scales that
// several output channels share (scheme().scale_rows) are repeated for each of them.
//
// k_order is there when the quantizer formed its groups over reordered input channels (activation
// order): the permutation that makes groups contiguous. Codes are delivered in that order.
//
// Every reader delivers this and every layout consumes it; readers and layouts never know of each
// other. An object describes; the bytes are read panel by panel when asked for, from any thread.

// Static quantization of activations, as stored: x ≈ (q − zero_point) · scale, q of the scheme's
// signed type.
struct InputQuantization {
  float scale = 0;
  int32_t zero_point = 0;

  friend bool operator==(const InputQuantization&, const InputQuantization&) = default;
};

// A number that all scales of a module have in common, where the scales are quantized, too (NVFP4).
// The scale is the product, or the quotient, rounded to f32, as all decoders compute it.
struct GlobalScale {
  float value = 1;
  bool divides = false;

  float Apply(float scale) const { return divides ? scale / value : scale * value; }

  friend bool operator==(const GlobalScale&, const GlobalScale&) = default;
};

// Where experts are stacked, their biases are, too: this module's is in row `row` of a tensor
// [rows, channels], element first + i · step for output channel i. Of layers that are fused, in a
// tensor [channels].
struct StackedBias {
  std::string_view tensor;  // the source holds the name
  uint64_t row = 0;
  uint64_t rows = 0;  // 0: the tensor has none
  uint64_t channels = 0;
  uint64_t first = 0;
  uint64_t step = 1;

  friend bool operator==(const StackedBias&, const StackedBias&) = default;
};

// A name that nearly always lies in a longer one, which the checkpoint holds: models have hundreds
// of thousands.
class KeptName {
 public:
  KeptName() = default;
  KeptName(const KeptName&) = delete;
  KeptName& operator=(const KeptName&) = delete;

  // Somebody else holds it, for longer.
  void Borrow(std::string_view name) {
    view_ = name;
    own_.reset();
  }
  void Own(std::string_view name) {
    own_ = std::make_unique<const std::string>(name);
    view_ = *own_;
  }
  // Borrows the name from one that begins with it; owns it where `longer` is another one.
  void BorrowFrom(std::string_view longer, std::string_view name) {
    if (longer.starts_with(name)) return Borrow(longer.substr(0, name.size()));
    Own(name);
  }
  std::string_view view() const { return view_; }

 private:
  std::string_view view_;
  std::unique_ptr<const std::string> own_;
};

class QuantizedLinear {
 public:
  virtual ~QuantizedLinear() = default;
  QuantizedLinear() = default;
  QuantizedLinear(const QuantizedLinear&) = delete;
  QuantizedLinear& operator=(const QuantizedLinear&) = delete;

  // Full name of the module, e.g. "model.layers.0.mlp.down_proj".
  std::string_view module() const { return module_.view(); }
  const Scheme& scheme() const { return *scheme_; }
  uint64_t n() const { return n_; }  // output channels
  uint64_t k() const { return k_; }  // input channels
  uint64_t groups() const { return CeilDiv(k_, scheme_->group_size); }
  // Is there a k_order?
  bool reordered() const { return k_order_ != nullptr; }
  // The permutation of [0, K), see above; never null, and empty if there is none. It comes from
  // the source: an error is one of reading it, or of a file that has changed.
  Result<SharedOrder> KOrder() const {
    return reordered() ? k_order_->Get() : std::make_shared<const InputOrder>();
  }
  // Of a scheme with static activations, else nullopt.
  const std::optional<InputQuantization>& input() const { return rare().input; }
  // Of a module whose bias is stacked with those of others, else null: other biases are named
  // MODULE.bias.
  const StackedBias* stacked_bias() const {
    return rare().stacked_bias ? &*rare().stacked_bias : nullptr;
  }
  // Of a scheme whose scales are quantized, else nullopt: ReadScales delivers Apply(a number of
  // FP8). The other one is for its activations, where they are quantized in the same way.
  const std::optional<GlobalScale>& global_scale() const { return rare().global_scale; }
  const std::optional<GlobalScale>& input_global_scale() const { return rare().input_global_scale; }
  // Dtype that the scales are stored in; of divisors and exponents, one that holds the scales.
  DType stored_scale_dtype() const { return stored_scale_dtype_; }
  // Are zero points stored one less, a whole word at a time, so that a 0 changed its neighbours in
  // the word? What is delivered is right.
  bool zeros_may_borrow() const { return zeros_may_borrow_; }
  // At least so many output channels should be read at a time (see panel_shape.h): more than one
  // where a file holds the codes of neighbouring output channels side by side.
  uint32_t wide_rows() const { return wide_rows_; }
  // Names of the source tensors that this module is made of, bias not included: it is not
  // quantized and passes through like any other tensor. Experts that are stored in one tensor
  // share it. The source holds the names: models have hundreds of thousands.
  const std::vector<std::string_view>& source_tensors() const { return source_tensors_; }
  // Bytes of those tensors; of a shared one, this module's share.
  uint64_t source_bytes() const { return source_bytes_; }
  // The modules of the checkpoint that this one is made of, in the order of their output channels,
  // where it is made of several (see stacked_linear.h); else none.
  virtual std::span<const QuantizedLinear* const> members() const { return {}; }
  // How many experts of a mixture the members are, expert after expert, each of as many members and
  // output channels; 0: they are no experts.
  virtual uint64_t stacked_experts() const { return 0; }

  // Fills `out` (PanelBytes(range) bytes) with the codes of the panel. An odd number of columns is
  // allowed at the end of a row; the unused half byte is zero. A range outside the module or a
  // buffer of another size is kUsage, here and below. Codes that the scheme does not have (outside
  // its bits, FP8 NaN) are kMalformed.
  virtual Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const = 0;
  // May the codes of the panel be read by input channel? So where the source holds 4-bit codes in
  // that order: what is packed in it, too, then need not be transposed on the way.
  virtual bool HasColumns(const PanelRange& /*range*/) const { return false; }
  // Where they may: fills `out` [cols, rows / 2] with two output channels per byte, the even one in
  // the low half. n0 and rows are even.
  virtual Status ReadColumns(const PanelRange& /*range*/, std::span<std::byte> /*out*/) const {
    return Usage(module(), "the source does not store its codes by input channel");
  }
  // Where the source holds the codes of the panel back to back, byte for byte as ReadCodes would
  // deliver them, with nothing to be checked about them: they can be used where they lie. The same
  // for all panels of this many columns, but for the offset, and the tensor where there are
  // members.
  struct CodesInSource {
    std::string_view tensor;
    uint64_t offset = 0;  // bytes from its start
  };
  virtual std::optional<CodesInSource> FindCodes(const PanelRange& /*range*/) const {
    return std::nullopt;
  }
  // Fills `out` [rows, G] with the scales of channels [n0, n0 + rows). Negative scales are legal.
  // NaN and infinity are kMalformed, and so is zero, unless every code of its group equals the zero
  // point; the message names the tensor and the element.
  virtual Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const = 0;
  // Fills `out` [rows, G] with zero points; ZeroOfSymmetric() throughout when symmetric.
  virtual Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const = 0;
  // Of a module whose weights are not a code times a scale: codes are these weights in bf16, and
  // this fills `out` [rows, K] with what they are before they are rounded.
  virtual bool HasFloats() const { return false; }
  virtual Status ReadWeights(uint64_t /*n0*/, uint64_t /*rows*/, std::span<float> /*out*/) const {
    return Usage(module(), "the module has codes and scales");
  }
  // Bits that are set in padding: behind the last code of a row, the last zero point of a column,
  // or in the unused part of a word. They mean nothing, and sound writers leave them zero: others
  // hint at a wrong width or K. May read all of the module.
  virtual Result<uint64_t> CountStrayBits() const { return uint64_t{0}; }
  // Where its numbers lie in the source; null if they belong to other modules.
  virtual const SourcePlaces* places() const { return nullptr; }
  // A module with a k_order as checkpoints store it: the same without, its codes in the order of
  // the model's input channels. Its scales and zero points are those of groups that are no longer
  // contiguous: channel order[j] belongs to group j / group_size. This must outlive it.
  virtual std::unique_ptr<QuantizedLinear> InModelOrder() const;

 protected:
  // Takes over what describes the other module, but for its k_order.
  void Describe(const QuantizedLinear& other);
  // Takes over its k_order, too: that of a module that this one is made of, which must outlive it.
  void ShareOrder(const QuantizedLinear& other);
  // Is the panel within the module, of whole bytes, and the buffer of its size? Else kUsage.
  Status CheckPanel(const PanelRange& range, size_t out_bytes) const;
  // Are output channels [n0, n0 + rows) within the module, with a value for each group of each?
  Status CheckRows(uint64_t n0, uint64_t rows, size_t out_count) const;

  // What few modules have: together, so that those that have none of it take no memory for it.
  struct RareNumbers {
    std::optional<InputQuantization> input = {};
    std::optional<GlobalScale> global_scale = {};
    std::optional<GlobalScale> input_global_scale = {};
    std::optional<StackedBias> stacked_bias = {};

    friend bool operator==(const RareNumbers&, const RareNumbers&) = default;
  };
  const RareNumbers& rare() const;
  void SetRare(const RareNumbers& rare);

  KeptName module_;
  SharedValue<Scheme> scheme_;
  uint64_t n_ = 0;
  uint64_t k_ = 0;
  std::unique_ptr<const KeptOrder> k_order_;  // null: none
  DType stored_scale_dtype_ = DType::kBF16;
  bool zeros_may_borrow_ = false;
  uint32_t wide_rows_ = 1;
  std::vector<std::string_view> source_tensors_;
  uint64_t source_bytes_ = 0;

 private:
  std::unique_ptr<const RareNumbers> rare_;  // null: none
};

}  // namespace prepack
