#ifndef PREPACK_LAYOUTS_TABLE_H_
#define PREPACK_LAYOUTS_TABLE_H_

// The one table of layouts and targets.

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "prepack/layouts/layout.h"

namespace prepack {

// A runtime that reads packed folders.
struct Target {
  std::string_view id;       // "vllm-cpu"
  std::string_view runtime;  // for people: "vLLM on x86-64 CPUs"
  // Its ops for experts of 4-bit integers quantize activations to 8 bits; it has no others.
  bool eight_bit_experts = false;
  // So do its ops for experts of 8-bit integers.
  bool eight_bit_int8_experts = false;
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

// In order of preference within a target: the first eligible one is chosen.
LayoutTable AllLayouts();
const Layout* FindLayout(std::string_view id);
std::vector<const Layout*> LayoutsOfTarget(std::string_view target);

// The rows. Each is defined in a file of this folder, below a drawing of its bytes. Each is one
// object, so that layouts can be compared by their addresses.
extern const Layout kKtAmxInt8;
extern const Layout kOneDnnW4A16;
extern const Layout kOneDnnW4A8;
extern const Layout kOneDnnW8A8;
extern const Layout kPlainBf16;
extern const Layout kPlainBf16Conv1d;
extern const Layout kVllmBf16Vnni;
extern const Layout kVllmFp8Vnni;
extern const Layout kVllmFp8W8A8Vnni4;
extern const Layout kVllmFp8W8A8Plain;
extern const Layout kVllmInt4W4A8;
extern const Layout kVllmInt8Plain;
extern const Layout kVllmInt8Vnni;
extern const Layout kVllmMxfp4;
extern const Layout kVllmWna16;
extern const Layout kZentorchDa8w4;
extern const Layout kZentorchInt8;
extern const Layout kZentorchInt8Dlp;
extern const Layout kZentorchWoq;

// The form in which onednn/w8a8 is written unless the request says otherwise.
BlockedDesc DefaultW8A8Desc(const PackRequest& request);

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_TABLE_H_
