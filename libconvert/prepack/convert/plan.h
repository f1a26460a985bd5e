#pragma once

// For every quantized module: the layout it gets, or why each candidate was rejected. Made from
// headers, and for checkpoints from the zero points and scales that a format might not hold.
// `prepack plan` shows it, and convert carries out the same object.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/convert/scheme_choice.h"
#include "prepack/formats/accepted.h"
#include "prepack/formats/format.h"
#include "prepack/gemm/onednn/descriptor.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {

// The form in which onednn/w8a8 writes its weights. What oneDNN's primitive asks for depends on the
// CPU that runs it, which need not be the one that packs.
enum class OneDnnForm : uint8_t {
  kBlocked,  // what CPUs with AVX-512 VNNI want, whatever this one is
  kPlain,    // row-major [K, N] without sums, what CPUs without it want
  kNative,   // what the primitive asks for on this machine
};

// What happens to a module that no layout of the target takes.
enum class Fallback : uint8_t {
  kKeep,        // it stays as stored, and the manifest says why
  kDequantize,  // it becomes bf16, packed where the target has a layout for that
  kError,       // the conversion is refused
};

struct PlanOptions {
  std::string target;
  // Dtype of activations at run time; none: what config.json says, else bf16.
  std::optional<DType> activation_dtype = {};
  std::vector<SchemeChoice> schemes = {};
  Fallback fallback = Fallback::kKeep;
  // Store scales as exactly as a part can hold them, instead of as the runtime would hold them.
  bool exact_scales = false;
  // The form of modules that onednn/w8a8 takes.
  OneDnnForm onednn_form = OneDnnForm::kBlocked;
  // Findings that the user accepts although they are errors.
  AcceptedFindings accepted = {};
  // Pack modules as one if runtimes run them as one, see convert/fused_modules.h.
  bool fuse = false;
  // Then: the experts of a mixture, too.
  bool fuse_experts = true;
  // For how many NUMA nodes a runtime that holds their shares of experts apart is to have them.
  uint64_t numa_nodes = 1;
  // Of the model, in the order of their names: only these are planned, one by one. Empty: all.
  std::span<const QuantizedLinear* const> only = {};
};

// One layout of the target, and whether it takes the module.
struct Candidate {
  const Layout* layout = nullptr;
  Eligibility verdict;
};

// The decision for a module and for all modules like it: models have tens of thousands of modules
// (experts), but few kinds of them.
struct LayoutChoice {
  // The basis of the decision: the request, and the activations in the checkpoint.
  PackRequest asked;
  ActivationScheme stored_activations;

  bool bf16_was_asked = false;  // by --scheme, of codes
  bool dequantizes = false;     // the dequantized module is packed: no layout takes the codes
  PackRequest request;          // of what is packed
  // Where request.weights_desc comes from, if a primitive was asked.
  std::optional<OneDnnOrigin> onednn = {};
  std::vector<Candidate> candidates;  // in order of preference
  const Layout* chosen = nullptr;     // the first eligible candidate; null: kept as stored
  std::vector<PartSpec> parts;        // of the chosen layout
  std::string note;                   // how the computation differs from what the checkpoint says

  uint64_t PartBytes() const;
};

// Layouts that reject a module for the same reason.
struct Rejection {
  const Eligibility* verdict = nullptr;  // of the first; belongs to the choice
  std::vector<std::string_view> layouts;
};

struct ModulePlan {
  // The choice must outlive this.
  ModulePlan(const QuantizedLinear& module, const LayoutChoice& choice);

  const QuantizedLinear* linear;
  // The dequantized module, if that is packed instead of `linear` itself.
  std::unique_ptr<QuantizedLinear> dequantized;
  // These belong to the choice. Modules that are alike share them, so equal addresses mean alike
  // modules.
  const PackRequest& request;
  const std::optional<OneDnnOrigin>& onednn;
  const std::vector<Candidate>& candidates;
  const std::vector<PartSpec>& parts;
  const std::string& note;
  const Layout* chosen;
  bool bf16_was_asked;  // by --scheme, of codes
  // The bytes of the module's tensors, including its bias if that becomes a part.
  uint64_t source_bytes = 0;
  uint64_t packed_bytes = 0;  // of all parts; source_bytes when kept
  // The module in the order of the model's input channels, if that is packed: by checkpoints.
  std::unique_ptr<QuantizedLinear> in_model_order;
  const QuantizedLinear& weights() const {
    if (dequantized) return *dequantized;
    return in_model_order ? *in_model_order : *linear;
  }
  // Is it a checkpoint's module with an index of groups that holds an activation order?
  bool HasGroupOrder() const { return chosen->checkpoint && linear->reordered(); }
  // The tensors of the source that the packed module replaces.
  std::vector<const StoredTensor*> ReplacedTensors(const Checkpoint& checkpoint) const;
  // The reasons of the rejected candidates. Candidates for other weights are left out, unless all
  // of them are for other weights.
  std::vector<Rejection> Rejections() const;
  // Why no layout was chosen, or why the module was dequantized: the same in one line.
  std::string WhyRejected() const;
};

struct Plan {
  const Target* target = nullptr;
  std::vector<const Layout*> layouts = {};  // of the target
  DType activation_dtype = DType::kBF16;
  Fallback fallback = Fallback::kKeep;
  // What the config of a checkpoint says once for all modules, see Target::model_wide.
  std::string model_wide = {};
  // What of them was read before the modules are planned.
  std::map<const QuantizedLinear*, ValueFacts> facts = {};
  // The class of the model, where it reads experts as one tensor per layer; see ClassWithStacks.
  std::string_view class_with_stacks = {};
  // Where layouts take whole mixtures only: those that are not packed, and why; see MixtureOf.
  std::map<std::string, MixtureFault, std::less<>> mixture_faults = {};
  // By N and K of the modules. The modules refer to them.
  std::multimap<std::pair<uint64_t, uint64_t>, LayoutChoice> choices;
  // Modules that are packed in place of several of the model. The plans of modules refer to them.
  std::vector<std::unique_ptr<QuantizedLinear>> fused;
  // Pieces of modules that checkpoints have one by one, and shares of NUMA nodes. The plans of
  // modules refer to them.
  std::vector<std::unique_ptr<QuantizedLinear>> pieces;
  // Name of what was not fused although that was asked for → why.
  std::map<std::string, std::string> apart;
  std::vector<ModulePlan> modules;  // ascending by module name
  uint64_t source_bytes = 0;        // all tensors of the source
  uint64_t output_bytes = 0;        // all tensors of the output

  size_t PackedModules() const;
  // Anonymous memory that a conversion on `threads` threads needs for its buffers at most, the page
  // cache not counted.
  uint64_t PeakMemory(unsigned threads) const;
};

// The modules of a source that are to be planned: those that are quantized, and with `fuse` the
// layers that a layout of the target packs although they are not (packed/plain_modules.h).
Result<QuantizedModel> ReadModelToPlan(const Checkpoint& checkpoint, const PlanOptions& options);

// kUsage for an unknown target, an option that is for another kind of target, or a --scheme or
// --onednn-form that is for no module. Where oneDNN is to be asked for its form, the errors of
// AskOneDnn. A plan in which nothing can be packed is still a plan.
Result<Plan> MakePlan(const Checkpoint& checkpoint, const QuantizedModel& model,
                      const PlanOptions& options);
// May the plan be carried out? kUnsupported when no module has a layout, or when one has none and
// the fallback is kError.
Status CheckPlan(const Plan& plan);

// What the runtime of the target would do with the module as it is stored.
std::vector<RuntimeChoice> RuntimeChoicesFor(const Plan& plan, const ModulePlan& module,
                                             const std::string& format);

// "bf16", "f16", "f32" as on the command line.
std::optional<DType> ActivationDTypeFromName(std::string_view name);
std::string_view ActivationDTypeName(DType dtype);

}  // namespace prepack
