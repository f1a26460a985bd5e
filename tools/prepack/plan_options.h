#ifndef PREPACK_TOOLS_PLAN_OPTIONS_H_
#define PREPACK_TOOLS_PLAN_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "convert/plan.h"

namespace prepack::cli {

// The options that decide a plan, shared by plan and convert.
struct PlanFlags {
  std::string target;
  std::string dtype;
  std::vector<std::string> schemes;
  std::string fallback = "keep";
  std::string scales = "runtime";
  std::string onednn_form = "blocked";
  std::vector<std::string> accepted;
  bool fuse = false;

  void AddTo(CLI::App& command);
  // kUsage for a --scheme that cannot be read.
  Result<PlanOptions> ToOptions() const;
};

}  // namespace prepack::cli

#endif  // PREPACK_TOOLS_PLAN_OPTIONS_H_
