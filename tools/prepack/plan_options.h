#ifndef PREPACK_TOOLS_PLAN_OPTIONS_H_
#define PREPACK_TOOLS_PLAN_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <string>

#include "convert/plan.h"

namespace prepack::cli {

// The options that decide a plan, shared by plan and convert.
struct PlanFlags {
  std::string target;
  std::string dtype;
  std::string fallback = "keep";

  void AddTo(CLI::App& command);
  PlanOptions ToOptions() const;
  Fallback ToFallback() const;
};

}  // namespace prepack::cli

#endif  // PREPACK_TOOLS_PLAN_OPTIONS_H_
