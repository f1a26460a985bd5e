#pragma once

// Are the files that a user wants written where they may be written? Asked before any work is done.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"
#include "prepack/base/status.h"
#include "prepack/convert/plan.h"

namespace prepack::cli {

class OutputPaths {
 public:
  // Nothing may be written into this folder, or any below it; `name` is for the message.
  void ProtectFolder(const std::filesystem::path& folder, std::string_view name);
  // This file may not be replaced.
  void ProtectFile(const std::filesystem::path& file, std::string_view name);
  // Adds the file that `option` names: kUsage when it is protected, a folder, or another option's
  // file as well; kSystem when its folder does not exist.
  Status Add(std::string_view option, const std::filesystem::path& file);

 private:
  struct Named {
    std::filesystem::path path;  // without links in its folder
    std::string name;
  };
  std::vector<Named> folders_;
  std::vector<Named> files_;
};

}  // namespace prepack::cli

namespace prepack::cli {

inline constexpr const char* kAcceptToRead =
    "A finding to accept. scale-zero: groups that have codes but a scale of zero; they are read as "
    "the zeros that runtimes compute. With =PATTERN, only in modules and tensors whose name "
    "matches the regular expression. May be repeated";

// --accept, into `accepted`.
CLI::Option& AddAccept(CLI::App& command, std::vector<std::string>& accepted,
                       const std::string& help);

// What a file of schemes says of itself.
struct SchemeNotes {
  std::string file;
  std::vector<std::string> lines;
};

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
  uint64_t numa_nodes = 1;

  void AddTo(CLI::App& command);
  // kUsage for a --scheme that cannot be read.
  Result<PlanOptions> ToOptions() const;
  // Of the files among the schemes.
  Result<std::vector<SchemeNotes>> Notes() const;
};

// On a terminal, what CpuHint says of this CPU, as a note on stderr. Nothing else that a command
// prints or writes depends on the CPU.
void PrintCpuHint(const Checkpoint& checkpoint, const QuantizedModel& model,
                  const PlanOptions& options, const CommonOptions& common);
// The same after a conversion, which has closed its source.
void PrintCpuHint(const std::filesystem::path& source, const PlanOptions& options,
                  const CommonOptions& common);

}  // namespace prepack::cli
