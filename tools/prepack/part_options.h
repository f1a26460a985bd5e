#pragma once

// --part, --report and --merge of the commands that many machines can share.

#include <CLI/CLI.hpp>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "command.h"
#include "options.h"
#include "prepack/base/status.h"
#include "prepack/packed/run_identity.h"

namespace prepack::cli {

struct PartFlags {
  std::string part;
  std::string report;
  std::vector<std::string> merge;

  // `results`: options of reports that a part cannot write, because it has no verdict.
  void AddTo(CLI::App& command, std::initializer_list<const char*> results);
  bool IsPart() const { return !part.empty(); }
  bool IsMerge() const { return !merge.empty(); }
  // kUsage if the report may not be written where it is to be.
  Status AddPath(OutputPaths& paths) const;
  // What --merge names: files, and of folders all files in them that end in .json. kUsage if there
  // is none.
  Result<std::vector<std::filesystem::path>> Reports() const;
};

// Writes the report of a part to its file and says so on stdout. The exit code is 0 whatever was
// found: the merge gives the verdict.
ExitCodeValue FinishPart(std::string_view command, const PartFlags& flags, const Part& part,
                         const Result<PartReport>& report, const CommonOptions& common);

}  // namespace prepack::cli
