#pragma once

// The products of one packed module, and how close they are to the truth.
//
// oneDNN's primitive multiplies the layouts that oneDNN reads, on the packed memory as it lies in
// the file. The model of the consumer's kernel (gemm/kernel_model.h) multiplies all others; it
// walks the packed bytes as the kernel does. A second implementation multiplies the same inputs,
// and the two must agree: the model if the primitive was first, otherwise oneDNN on the unpacked
// weights.

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/gemm/engine.h"
#include "prepack/packed/folder.h"
#include "prepack/verify/decoded_weights.h"
#include "prepack/verify/input_cache.h"
#include "prepack/verify/report/report.h"
#include "prepack/verify/second/decoder.h"

namespace prepack {

// Memory of threads that multiply one module after another, as of the experts of a stack. Without
// it, every module would allocate what the one before has given back.
class ProductMemory {
 public:
  ProductMemory();
  ~ProductMemory();
  ProductMemory(const ProductMemory&) = delete;
  ProductMemory& operator=(const ProductMemory&) = delete;

  struct OfThread;
  // At least so many.
  std::span<OfThread> Of(unsigned threads);

 private:
  std::vector<OfThread> threads_;
};

struct ProductOptions {
  GemmEngine* engine = nullptr;          // null: models alone
  bool repack = false;                   // see PackedProblem
  const Checkpoint* recorded = nullptr;  // see GemmInputs
  const Checkpoint* baseline = nullptr;  // the unquantized model
  // Of each module, that are multiplied with all activations (channel_panels.h).
  uint64_t sampled_weights = UINT64_MAX;
  // Does a primitive multiply all output channels with the one-hot rows? It has to for one module
  // of each kind; of others it multiplies the sample.
  bool whole = true;
  // The other output channels are left out: for figures, not for a proof.
  bool sample_only = false;
  // No sample: the module gets only what every output channel gets.
  bool channels_only = false;
  unsigned threads = 1;
  InputCache* inputs = nullptr;     // what modules share; null: nothing
  ProductMemory* memory = nullptr;  // of one module at a time; null: its own
};

struct ModuleProducts {
  GemmFigures gemm;  // bars are not set
  // What the primitive says of the form of the weights: kUnsupported when it wants another one
  // here, kUnavailable when there is none for them.
  Status form;
  DecodedDifferences weights;  // that the model of the kernel reads, from the source's
  std::optional<QualityFigures> quality;
  std::string no_quality;  // why there are no figures although there is a baseline
};

// Does a model know the form of the weights? Of onednn/w8a8 they know two.
bool IsModelledForm(const PackRequest& request);

// Panels of output channels are multiplied on all threads. Memory: some 100 bytes per input channel
// and row of activations, the module's parts but the weight, per thread a panel of decoded weights,
// and y [64, N] where a primitive runs.
//
// kUnsupported when nothing can multiply such a module, kUnavailable when the engine gives up;
// kMalformed when the module, or the source by the second path, cannot be right.
Result<ModuleProducts> MultiplyModule(const PackedModule& packed, const SecondDecoder& source,
                                      const ProductOptions& options, Progress& progress);

}  // namespace prepack
