#include "verify/decisions.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

#include "convert/plan.h"
#include "convert/scheme_choice.h"

namespace prepack {
namespace {

// "16-bit activations", "activations of 8-bit int per token dynamic".
std::string NameOf(const ActivationScheme& activations) {
  if (activations.type == ActivationType::kNone) return "16-bit activations";
  return fmt::format("activations of {}", DescribeActivations(activations));
}

// Empty: as the checkpoint says, and as every kernel for such weights takes it.
std::string DecisionOf(const QuantizedLinear& linear, const ModuleRecord& record) {
  if (record.scheme.code == CodeType::kBF16) {
    return fmt::format("its weights were dequantized; the checkpoint has {}",
                       DescribeScheme(linear.scheme()));
  }
  const std::optional<ActivationScheme> asked =
      ActivationsFor(linear.scheme(), WantedScheme::kAuto);
  if (!asked || *asked == record.scheme.activations) return "";
  return fmt::format("it was packed for {}; the checkpoint asks for {}",
                     NameOf(record.scheme.activations), NameOf(*asked));
}

}  // namespace

void JudgeDecisions(const Manifest& manifest, const Checkpoint& source, const QuantizedModel& model,
                    bool strict, LevelResult& result) {
  const auto add = [&](const std::string& module, std::string where, std::string message) {
    if (strict) result.state = LevelState::kFailed;
    (strict ? result.problems : result.notes)
        .push_back({module, std::move(where), std::move(message)});
  };
  const DType asked = DTypeOfConfig(source.config()).value_or(DType::kBF16);
  if (manifest.activation_dtype != asked) {
    add("", "activations",
        fmt::format("the folder was packed for {}; the checkpoint says {}",
                    DTypeName(manifest.activation_dtype), DTypeName(asked)));
  }
  for (const auto& [name, record] : manifest.modules) {
    const QuantizedLinear* linear = model.Find(name);
    std::string decision = linear == nullptr ? "" : DecisionOf(*linear, record);
    if (!decision.empty()) add(name, "module " + name, std::move(decision));
  }
}

}  // namespace prepack
