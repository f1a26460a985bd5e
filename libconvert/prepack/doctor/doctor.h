#pragma once

// Do this machine, what is installed on it, and a folder fit together, and what is to be done where
// they do not? Everything is read from files; only oneDNN, which `verify` loads too, is started.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/doctor/machine.h"
#include "prepack/doctor/python_packages.h"
#include "prepack/layouts/layout.h"

namespace prepack {

// Whether a layout's kernel runs on a CPU.
enum class CpuFit : uint8_t {
  kRuns,
  kRunsWorse,  // slower or less exactly than on a CPU with more
  kNot,
};

struct LayoutFit {
  const Layout* layout = nullptr;
  CpuFit fit = CpuFit::kRuns;
  std::string why;  // "needs AVX-512, BF16"; empty where it just runs
};

LayoutFit FitOf(const Layout& layout, const CpuFeatures& features);

// A program or library that reads what prepack writes, or helps one to do so.
struct Consumer {
  std::string_view id;                         // "vllm"
  std::string_view name;                       // "vLLM"
  std::span<const std::string_view> packages;  // on PyPI; any of them
  std::string_view made_for;                   // the version that our layouts mirror; may be empty
  std::string_view also;                       // another that was seen to pack and compute the same
  std::string_view install;                    // what to do where it is missing

  // "2.13.0.1 and 2.14.0.1"
  std::string Versions(std::string_view between) const;
};

std::span<const Consumer> AllConsumers();

struct InstalledConsumer {
  const Consumer* consumer = nullptr;
  std::string package;  // which of its packages; empty: it is not installed
  std::string version;
};

// oneDNN as prepack loads it.
struct OneDnnState {
  std::string name;  // "onednn 3.13.2"; empty: it cannot be used
  std::string why;   // then: why not
};

enum class DoctorSeverity : uint8_t {
  kAdvice,   // it runs
  kProblem,  // as things are, it does not
};

struct DoctorFinding {
  DoctorSeverity severity = DoctorSeverity::kAdvice;
  std::string_view id;  // "cpu-lacks-feature", stable
  std::string what;
  std::string todo;
};

// A layout in a folder, or one that a target would give it.
struct LayoutUse {
  LayoutFit fit;
  size_t modules = 0;
};

// What a target would make of a checkpoint.
struct TargetFit {
  std::string_view target;
  std::vector<LayoutUse> layouts;
  size_t kept = 0;    // modules that no layout takes
  bool runs = false;  // something is packed, and all of it runs on this CPU
};

struct FolderReport {
  std::string path;
  bool packed = false;
  std::string target;              // of a packed folder
  std::string format;              // of the checkpoint
  uint64_t bytes = 0;              // of all tensors
  std::vector<LayoutUse> layouts;  // of a packed folder
  std::vector<TargetFit> targets;  // of a checkpoint
  std::vector<DoctorFinding> findings;

  bool HasProblem() const;
};

struct DoctorReport {
  Machine machine;
  std::optional<PythonEnvironment> python;
  std::vector<InstalledConsumer> consumers;
  OneDnnState onednn;
  std::vector<LayoutFit> layouts;
  std::vector<FolderReport> folders;

  const InstalledConsumer& Find(std::string_view consumer) const;
};

struct DoctorOptions {
  std::vector<std::filesystem::path> folders;
  std::filesystem::path python;      // see FindPython
  std::filesystem::path root = "/";  // see ReadMachine
};

// Of folders, the errors of opening them.
Result<DoctorReport> Diagnose(const DoctorOptions& options);

}  // namespace prepack
