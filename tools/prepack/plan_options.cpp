#include "plan_options.h"

namespace prepack::cli {

void PlanFlags::AddTo(CLI::App& command) {
  command.add_option("-t,--target", target, "Runtime to pack for; `prepack targets` lists them")
      ->required()
      ->type_name("TARGET");
  command
      .add_option(
          "--dtype", dtype,
          "Dtype of activations at run time: bf16, f16 or f32 (default: that of config.json)")
      ->check(CLI::IsMember({"bf16", "f16", "f32"}))
      ->type_name("DTYPE");
  command
      .add_option("--fallback", fallback,
                  "What becomes of a module that no layout takes: keep it as stored, or error")
      ->check(CLI::IsMember({"keep", "error"}))
      ->capture_default_str()
      ->type_name("WHAT");
}

PlanOptions PlanFlags::ToOptions() const {
  return {.target = target,
          .activation_dtype = dtype.empty() ? std::nullopt : ActivationDTypeFromName(dtype)};
}

Fallback PlanFlags::ToFallback() const {
  return fallback == "error" ? Fallback::kError : Fallback::kKeep;
}

}  // namespace prepack::cli
