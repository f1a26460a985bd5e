// Writes docs/layouts/: layouts_doc FOLDER

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "layout_page.h"
#include "overview.h"
#include "prepack/layouts/table.h"

namespace prepack::layouts_doc {
namespace {

Status WritePage(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return SystemError(path.string(), "cannot write it", errno);
  return {};
}

Status WritePages(const std::filesystem::path& folder) {
  Status status = WritePage(folder / "README.md", Overview());
  for (const Layout& layout : AllLayouts()) {
    if (!status.ok()) return status;
    const Result<std::string> page = LayoutPage(layout);
    status = page.ok() ? WritePage(folder / PageName(layout), *page) : page.status();
  }
  return status;
}

}  // namespace
}  // namespace prepack::layouts_doc

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: layouts_doc FOLDER\n");
    return 2;
  }
  const prepack::Status status = prepack::layouts_doc::WritePages(argv[1]);
  if (status.ok()) return 0;
  fmt::print(stderr, "layouts_doc: {}\n", status.ToString());
  return 1;
}
