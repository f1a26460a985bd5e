#pragma once

// convert and plan with --target gguf.

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <string_view>

#include "command.h"
#include "options.h"
#include "prepack/convert/gguf/convert.h"
#include "prepack/convert/source.h"

namespace prepack::cli {

inline constexpr const char* kGgufTarget = "gguf";

// The options that are for GGUF only.
struct GgufFlags {
  std::string like;  // of sources that are GGUF files
  std::string llama_cpp;
  std::string python;
  uint64_t shard_size = 0;
  bool exact = false;
  bool no_tokenizer = false;
  bool trust_remote_code = false;

  void AddTo(CLI::App& command);
  // Those for commands that read GGUF files and make none.
  void AddSourceTo(CLI::App& command);
  // kUsage for options that other targets have no use for.
  Status CheckForOthers() const;
  // kUsage where what was named is missing. llama.cpp is asked only if --llama-cpp was given.
  Result<GgufSource> ToSource() const;
  // kUsage for options that are not for GGUF, and where llama.cpp or a Python is missing.
  Result<gguf::PlanOptions> ToOptions(const std::string& source, const PlanFlags& flags) const;
};

// kUsage for the first of these options that is given.
Status RejectForGguf(const std::map<std::string_view, bool>& given);

// `verify`: the output is verified against the source.
ExitCodeValue RunConvertGguf(gguf::ConvertOptions options, bool verify,
                             const CommonOptions& common);
ExitCodeValue RunPlanGguf(const gguf::PlanOptions& options, const CommonOptions& common);

}  // namespace prepack::cli
