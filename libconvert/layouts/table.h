#ifndef PREPACK_LAYOUTS_TABLE_H_
#define PREPACK_LAYOUTS_TABLE_H_

// The one table of layouts and targets.

#include <span>
#include <string_view>
#include <vector>

#include "layouts/layout.h"

namespace prepack {

// A runtime that reads packed folders.
struct Target {
  std::string_view id;       // "vllm-cpu"
  std::string_view runtime;  // for people: "vLLM on x86-64 CPUs"
};

std::span<const Target> AllTargets();
const Target* FindTarget(std::string_view id);

// In order of preference within a target: the first eligible one is chosen.
std::span<const Layout> AllLayouts();
const Layout* FindLayout(std::string_view id);
std::vector<const Layout*> LayoutsOfTarget(std::string_view target);

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_TABLE_H_
