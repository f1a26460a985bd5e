#ifndef PREPACK_CONVERT_PLAN_H_
#define PREPACK_CONVERT_PLAN_H_

// For every quantized module: the layout it gets, or why each candidate was rejected. Made from
// headers only. `prepack plan` shows it, and convert carries out the same object.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "container/checkpoint.h"
#include "formats/format.h"
#include "layouts/table.h"

namespace prepack {

// What happens to a module that no layout of the target takes.
enum class Fallback : uint8_t {
  kKeep,   // it stays as stored, and the manifest says why
  kError,  // the conversion is refused
};

struct PlanOptions {
  std::string target;
  // Dtype of activations at run time; none: what config.json says, else bf16.
  std::optional<DType> activation_dtype;
};

// One layout of the target, and whether it takes the module.
struct Candidate {
  const Layout* layout = nullptr;
  Eligibility verdict;
};

struct ModulePlan {
  const QuantizedLinear* linear = nullptr;
  PackRequest request;
  std::vector<Candidate> candidates;  // in order of preference
  const Layout* chosen = nullptr;     // the first eligible candidate; null: kept as stored
  std::vector<PartSpec> parts;        // of the chosen layout
  uint64_t packed_bytes = 0;          // of all parts; source_bytes() when kept

  // Why nothing was chosen: the reasons of all candidates in one line.
  std::string WhyKept() const;
};

struct Plan {
  const Target* target = nullptr;
  DType activation_dtype = DType::kBF16;
  std::vector<ModulePlan> modules;  // ascending by module name
  uint64_t source_bytes = 0;        // all tensors of the source
  uint64_t output_bytes = 0;        // all tensors of the output

  size_t PackedModules() const;
};

// kUsage for an unknown target. A plan in which nothing can be packed is still a plan.
Result<Plan> MakePlan(const Checkpoint& checkpoint, const QuantizedModel& model,
                      const PlanOptions& options);
// May the plan be carried out? kUnsupported when no module has a layout, or when one has none and
// the fallback is kError.
Status CheckPlan(const Plan& plan, Fallback fallback);

// "bf16", "f16", "f32" as on the command line.
std::optional<DType> ActivationDTypeFromName(std::string_view name);
std::string_view ActivationDTypeName(DType dtype);

}  // namespace prepack

#endif  // PREPACK_CONVERT_PLAN_H_
