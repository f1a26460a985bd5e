// Writes completions and man pages, made from the command line, into a folder:
//
//   bash/prepack  zsh/_prepack  fish/prepack.fish  man/prepack.1  man/prepack-COMMAND.1

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "command.h"
#include "command_tree.h"
#include "prepack/base/version.h"

namespace prepack::cli_docs {

std::string Escaped(const std::string& text, std::string_view special) {
  std::string escaped;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

namespace {

bool WriteText(const std::filesystem::path& path, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return true;
  fmt::print(stderr, "error: {}: cannot be written\n", path.string());
  return false;
}

bool WriteAll(const std::filesystem::path& folder) {
  CLI::App app;
  int exit_code = 0;
  cli::DescribeCommandLine(app, exit_code);
  const CommandTree tree = ReadCommandTree(app);
  bool written = WriteText(folder / "bash" / "prepack", BashCompletion(tree)) &&
                 WriteText(folder / "zsh" / "_prepack", ZshCompletion(tree)) &&
                 WriteText(folder / "fish" / "prepack.fish", FishCompletion(tree)) &&
                 WriteText(folder / "man" / "prepack.1", ProgramManPage(tree, kVersion));
  for (const CommandEntry& command : tree.commands) {
    const std::string name = fmt::format("prepack-{}.1", command.name);
    written = written && WriteText(folder / "man" / name, CommandManPage(command, kVersion));
  }
  return written;
}

}  // namespace
}  // namespace prepack::cli_docs

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "error: cli_docs: no folder to write to. Usage: cli_docs FOLDER\n");
    return 2;
  }
  return prepack::cli_docs::WriteAll(argv[1]) ? 0 : 4;
}
