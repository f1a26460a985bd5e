#pragma once

// How the multiplication of a packed module is cut, so that its memory is bounded whatever the
// shape of the module: into panels of output channels and, if there are very many input channels,
// into slabs of those. Only the shape and the layout decide where the cuts are, so figures depend
// on nothing else.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/io/memory_limit.h"
#include "prepack/measure/measurements.h"
#include "prepack/packed/folder.h"
#include "prepack/verify/judgement.h"
#include "prepack/verify/module_products.h"
#include "prepack/verify/packed_source.h"
#include "prepack/verify/report/report.h"
#include "prepack/verify/second/decoder.h"

namespace prepack {

// Up to so many input channels are multiplied at once. The widest layers of published models have
// fewer, or little more.
inline constexpr uint64_t kMostWholeInputs = uint64_t{1} << 16;

// A panel that all rows are multiplied with has this many weights: 4 MiB of f64, and in all so
// little that modules of 4096 input channels run side by side on two threads.
inline constexpr uint64_t kPanelWeights = uint64_t{1} << 19;

// Outputs of a primitive, of all activations together, that are kept at a time.
inline constexpr uint64_t kMaxOutputs = uint64_t{1} << 26;
// Activations of a slab that a primitive is given at once, zeros everywhere else among them.
inline constexpr uint64_t kPaddedInputs = uint64_t{1} << 22;
// Rows that the second implementation multiplies unpacked weights with, or a slab of the packed
// ones: weights are what it is asked about, and few rows tell.
inline constexpr uint64_t kSecondRows = 8;

struct ProductCut {
  uint64_t k = 0;
  uint64_t slab_inputs = 0;  // of a slab; K: all of them at once
  uint64_t channels = 0;     // output channels of a panel; the last one may have fewer
  uint64_t compared = 0;     // of one whose weights are only compared
  uint64_t unit = 0;         // a panel begins at a multiple of so many
  uint64_t tile = 0;         // so many are unpacked at a time, or all up to N

  // Those that have to be unpacked with output channels [n0, n0 + wanted).
  uint64_t Unpacked(uint64_t n0, uint64_t wanted, uint64_t n) const {
    return std::min(CeilDiv(wanted, tile) * tile, n - n0);
  }

  uint64_t slabs() const;
  // None: all input channels at once.
  std::optional<InputSlab> Slab(uint64_t index) const;
};

// kUnsupported when there are too many input channels to multiply them at once, and the groups can
// be cut nowhere.
Result<ProductCut> CutProducts(const PackedModule& packed);

// What the multiplication of a packed module takes, for --memory-limit.

// At most; nothing for a module that cannot be multiplied.
MemoryNeed MemoryOfProducts(const PackedModule& packed, const ProductOptions& options);

struct GemmOptions {
  ProductOptions products;
  bool judge_gemm = true;
  bool judge_quality = false;            // needs products.baseline
  const ModuleSample* sample = nullptr;  // null: every module
  // Of the folder itself, where it is a checkpoint: its modules are compared with the source's, not
  // multiplied. Else null.
  const SecondDecoder* output = nullptr;
  // The source, if it is a packed folder. Else null.
  const PackedSource* packed_source = nullptr;
  // Called once, before the first product: may set the engine, and what is judged. It may wait for
  // the engine, unless that is ready.
  std::function<Status()> begin = {};
  std::function<bool()> is_ready = {};
};

struct GemmLevels {
  LevelResult gemm;
  LevelResult quality;
};

// Levels 3 and 4 of the modules in the sample.
//
// GEMM: does a product of the packed weights give what the source says? Every module is multiplied
// with the activations of gemm_inputs.h by the implementations of module_products.h. Both
// references are f64, from the source, decoded by the second path:
//   kernel       activations, scales and weights as the kernel quantizes and rounds them: what
//                remains is the kernel's own rounding, so wrong bytes show whatever the input
//   end to end   x · Wᵀ with nothing rounded: what a user gets
// The kernel figure, and the one of the worst output channel, must reach the bar on all
// activations, and so must the agreement of the two implementations; the end-to-end figure on
// Gaussian ones.
//
// Of a checkpoint's modules, which no kernel reads, the weights themselves are compared: see
// decoded_weights.h.
//
// Quality: how far are the weights, and the outputs, from the unquantized model? A module that
// seems to have nothing to do with it, or is far below its peers, gets a note.
class GemmCheck {
 public:
  // All arguments must outlive it.
  GemmCheck(const PackedFolder& folder, const SecondDecoder& source, const GemmOptions& options,
            const SqnrBars& bars, Progress& progress);

  // Before all else: this is a part of a check, or takes what all parts have measured.
  void Share(Measurements& measured) { measured_ = &measured; }

  // Before the first product, or in the end if there is none. From any thread.
  Status Begin();
  // Can it begin at once?
  bool IsReady() const { return !options_.is_ready || options_.is_ready(); }

  // How many weights it looks at.
  uint64_t weights() const;

  // Multiplies a module, by its number in the manifest, on so many threads. From any thread; the
  // engine multiplies for one at a time.
  Status Multiply(size_t index, unsigned threads);

  // Of what has been multiplied so far; nothing: there is none.
  std::optional<Problem> FirstProblem() const;

  // In the end: the levels. Sets figures and states of the modules in `figures`.
  GemmLevels Finish(ModuleFigures& figures);

 private:
  // A packed module and what has been found of it.
  struct Module {
    const std::string* name = nullptr;
    const ModuleRecord* record = nullptr;
    ModuleVerification found;
    GemmLevels levels;
  };

  // What a module is multiplied with.
  struct Means {
    unsigned threads = 1;
    ProductMemory* memory = nullptr;  // that of the modules before
  };
  // Multiplies a module, or one expert of a stack, and judges it: the figures become those of
  // `found`, what is wrong is added to `levels`.
  Status RunModule(const PackedModule& packed, const ModuleRecord& record, const Means& means,
                   ModuleVerification& found, GemmLevels& levels) const;
  // The same of a module of a checkpoint, which is compared.
  Status CompareModule(const PackedModule& packed, unsigned threads, ModuleVerification& found,
                       LevelResult& result) const;
  Status RunExperts(const PackedModule& packed, unsigned threads, Module& module) const;
  void Judge(const PackedModule& packed, const ModuleRecord& record, ModuleProducts products,
             ModuleVerification& found, GemmLevels& levels) const;
  // Says of each level that is judged why the module was not multiplied.
  void ReportMissing(const Status& status, ModuleVerification& found, GemmLevels& levels) const;

  // See ProductOptions::whole.
  bool MultipliesWhole(const PackedModule& packed) const {
    return packed.expert().value_or(0) == 0 && whole_.contains(packed.name());
  }

  const PackedFolder& folder_;
  const SecondDecoder& source_;
  const GemmOptions& options_;
  const SqnrBars& bars_;
  Progress& progress_;
  Measurements alone_;
  Measurements* measured_ = &alone_;
  std::vector<Module> modules_;       // in the order of the manifest
  std::set<std::string_view> whole_;  // the first module of each kind
  std::once_flag begun_;
  Status begin_;
};

}  // namespace prepack
