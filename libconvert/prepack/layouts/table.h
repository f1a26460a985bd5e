#pragma once

// The one table of layouts and targets.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/layouts/layout.h"

namespace prepack {

// A runtime that reads packed folders, or a format of checkpoints, which many read.
struct Target {
  std::string_view id;       // "vllm-cpu"
  std::string_view runtime;  // for people: "vLLM on x86-64 CPUs"
  // Its ops for experts of 4-bit integers quantize activations to 8 bits; it has no others.
  bool eight_bit_experts = false;
  // The target is a format of checkpoints, quantized by this quant_method; none: not quantized.
  bool checkpoint = false;
  std::string_view format = {};
  // Of a checkpoint whose config says something once for all modules that differ in it: what the
  // request has, for people. Null: nothing.
  std::string (*model_wide)(const PackRequest& request) = nullptr;
  // Its ops for experts of 8-bit integers quantize activations to 8 bits; it has no others.
  bool eight_bit_int8_experts = false;
  // Its runtime runs modules that read the same input as one (q, k and v; gate and up), and all
  // experts of a layer in one op.
  bool runs_fused = false;

  // Is it a checkpoint that is not quantized?
  bool HoldsNoCodes() const { return checkpoint && format.empty(); }
};

std::span<const Target> AllTargets();
const Target* FindTarget(std::string_view id);

// Looks like a container of layouts; what it holds is pointers to the rows below.
class LayoutTable {
 public:
  class Iterator {
   public:
    explicit constexpr Iterator(const Layout* const* at) : at_(at) {}
    constexpr const Layout& operator*() const { return **at_; }
    constexpr Iterator& operator++() {
      ++at_;
      return *this;
    }
    friend constexpr bool operator==(const Iterator&, const Iterator&) = default;

   private:
    const Layout* const* at_;
  };

  explicit constexpr LayoutTable(std::span<const Layout* const> rows) : rows_(rows) {}
  constexpr Iterator begin() const { return Iterator(rows_.data()); }
  constexpr Iterator end() const { return Iterator(rows_.data() + rows_.size()); }
  constexpr size_t size() const { return rows_.size(); }
  constexpr const Layout& operator[](size_t index) const { return *rows_[index]; }

 private:
  std::span<const Layout* const> rows_;
};

// Those that kernels read, in order of preference within a target: the first eligible one is
// chosen.
LayoutTable AllLayouts();
// Those of checkpoint formats, in the same order.
LayoutTable CheckpointLayouts();
// Of either kind.
const Layout* FindLayout(std::string_view id);
std::vector<const Layout*> LayoutsOfTarget(std::string_view target);
// Is it one of them?
bool BelongsTo(const Layout& layout, std::string_view target);

// The rows. Each is one object, so that layouts can be compared by their addresses.
#define PREPACK_LAYOUT(row, model, rounding) extern const Layout row;
#define PREPACK_CHECKPOINT_LAYOUT(row) extern const Layout row;
#include "prepack/layouts/layouts.inc"

// The form in which onednn/w8a8 is written unless the request says otherwise.
BlockedDesc DefaultW8A8Desc(const PackRequest& request);

}  // namespace prepack
