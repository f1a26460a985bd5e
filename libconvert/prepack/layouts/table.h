#ifndef PREPACK_LAYOUTS_TABLE_H_
#define PREPACK_LAYOUTS_TABLE_H_

// The one table of layouts and targets.

#include <span>
#include <string_view>
#include <vector>

#include "prepack/layouts/layout.h"

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

// The rows. Each is defined in the file that has its name, below a drawing of its bytes.
extern const Layout kOneDnnW4A16;
extern const Layout kOneDnnW4A8;
extern const Layout kPlainBf16;
extern const Layout kPlainBf16Conv1d;
extern const Layout kVllmBf16Vnni;
extern const Layout kVllmFp8Vnni;
extern const Layout kVllmFp8W8A8Vnni4;
extern const Layout kVllmFp8W8A8Plain;
extern const Layout kVllmInt4W4A8;
extern const Layout kVllmInt8Plain;
extern const Layout kVllmInt8Vnni;
extern const Layout kVllmWna16;
extern const Layout kZentorchDa8w4;
extern const Layout kZentorchInt8;
extern const Layout kZentorchInt8Dlp;
extern const Layout kZentorchWoq;

}  // namespace prepack

#endif  // PREPACK_LAYOUTS_TABLE_H_
