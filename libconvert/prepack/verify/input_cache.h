#pragma once

// Modules of the same K, scheme and layout are multiplied with the same activations. To make these,
// and what the kernel makes of them, takes as long as to read tens of megabytes of weights, so such
// modules share them.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/model/scheme.h"
#include "prepack/packed/folder.h"
#include "prepack/verify/gemm_inputs.h"
#include "prepack/verify/kept_entries.h"
#include "prepack/verify/second/decoder.h"

namespace prepack {

// All functions are safe from any thread.
class InputCache {
 public:
  // Those of a K of 4096 and of 14,336, as layers of Llama have them.
  static constexpr uint64_t kMostKept = uint64_t{28} << 20;

  // Keeps the activations that were used last, up to so many bytes, and as many of what was drawn
  // last; others are given back when no module uses them any more.
  explicit InputCache(uint64_t most_kept = kMostKept) : entries_(most_kept), drawn_(most_kept) {}

  // Can the activations of the module be among those that are kept?
  bool Keeps(const PackedModule& packed, const Checkpoint* recorded) const;

  // GemmInputs::Make with the dtype that the kernel is given, or what it made before. Activations
  // that are the module's own are always made: recorded ones, those in the range of a static scale,
  // of slabs, and in another order of input channels, of which only what is drawn is shared.
  Result<std::shared_ptr<const GemmInputs>> Inputs(const PackedModule& packed,
                                                   const SecondDecoder& source,
                                                   const Checkpoint* recorded,
                                                   const std::optional<InputSlab>& slab);

  // The dense rows of such inputs as the kernel multiplies them (DenseRowsOfKernel in truth.h).
  // `dense` gives the model that has been given them; it is asked for only if they are not known.
  Result<std::shared_ptr<const std::vector<double>>> KernelRows(
      const std::shared_ptr<const GemmInputs>& inputs,
      const std::function<Result<const KernelModel*>()>& dense);

 private:
  struct Key {
    std::string_view layout;
    Scheme scheme;
    uint64_t k = 0;
    DType dtype = DType::kBF16;

    friend bool operator==(const Key&, const Key&) = default;
  };
  // None: nobody has made them yet. Who makes them holds the lock, and others wait.
  struct Entry {
    std::mutex mutex;
    std::optional<GemmInputs> inputs;
    std::shared_ptr<const std::vector<double>> kernel_rows;
  };

  struct DrawnEntry {
    std::mutex mutex;
    std::optional<DrawnRows> rows;
  };

  std::shared_ptr<const DrawnRows> Drawn(uint64_t k);

  KeptEntries<Key, Entry> entries_;
  KeptEntries<uint64_t, DrawnEntry> drawn_;  // by K
};

}  // namespace prepack
