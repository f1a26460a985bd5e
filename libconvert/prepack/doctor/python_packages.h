#pragma once

// What is installed in a Python environment, by the names of its *.dist-info folders: no Python
// runs, and nothing of the environment is executed.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"

namespace prepack {

struct PythonEnvironment {
  std::filesystem::path prefix;                // "/usr", or the folder of a virtual environment
  std::vector<std::filesystem::path> folders;  // where packages are looked for; those that exist
  // Name, as PyPI compares names, → version. Where two folders have one, the first counts.
  std::map<std::string, std::string, std::less<>> packages;

  // Empty when it is not installed.
  std::string VersionOf(std::string_view package) const;
};

// "Kt_Kernel" and "kt.kernel" are both "kt-kernel".
std::string NormalPackageName(std::string_view name);

// The environment of `python`, the program or the folder of an environment; if it is empty, the
// active one (VIRTUAL_ENV, CONDA_PREFIX), else that of the `python3` that PATH finds, if any.
// kUsage when `python` is none.
Result<std::optional<PythonEnvironment>> FindPython(const std::filesystem::path& python);

}  // namespace prepack
