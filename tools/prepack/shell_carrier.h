#pragma once

#include <string>
#include <vector>

#include "prepack/convert/source_flow.h"

namespace prepack::cli {

// Carries files by a command of the shell, in which {file} stands for the name and {path} for the
// place, each as one word. What the command prints goes to stderr.
class ShellCarrier final : public FileCarrier {
 public:
  // `option` names it in errors: "--fetch". The command has the environment of now: when it starts,
  // another thread may be changing that of the process, as the runtime of oneDNN does.
  ShellCarrier(std::string option, std::string command);

  // kUsage without {file} or {path}.
  Status Check() const;
  Status Carry(const std::string& name, const std::filesystem::path& path,
               const std::atomic<bool>& stop) override;

 private:
  std::string option_;
  std::string command_;
  std::vector<std::string> environment_;
};

}  // namespace prepack::cli
