#include "options.h"

#include <filesystem>

#include "catch.h"
#include "prepack/io/file.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::cli {
namespace {

using testing::CheckError;
using testing::RequireOk;
using testing::TempFolder;

TEST_CASE("a file that stands nowhere else may be written") {
  const TempFolder folder;
  OutputPaths paths;
  paths.ProtectFolder(folder / "not there", "the packed folder");
  RequireOk(paths.Add("--junit", folder / "a.xml"));
  RequireOk(paths.Add("--html", folder / "a.html"));
}

TEST_CASE("two options cannot name one file, however it is spelled") {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "b");
  std::filesystem::create_symlink("b", folder / "link");
  OutputPaths paths;
  RequireOk(paths.Add("--junit", folder / "b" / "a"));
  CheckError(paths.Add("--html", folder / "b" / ".." / "b" / "a"), ErrorKind::kUsage,
             "--junit is the same file");
  CheckError(paths.Add("--markdown", folder / "link" / "a"), ErrorKind::kUsage,
             "--junit is the same file");
  paths.ProtectFile(folder / "r.json", "--against");
  CheckError(paths.Add("--html", folder / "r.json"), ErrorKind::kUsage,
             "--against is the same file");
}

TEST_CASE("nothing is written into a protected folder") {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "packed" / "deep");
  std::filesystem::create_directory(folder / "packed-too");
  std::filesystem::create_symlink(folder / "packed", folder / "link");
  OutputPaths paths;
  paths.ProtectFolder(folder / "packed", "the packed folder");
  for (const auto& file : {folder / "packed" / "config.json", folder / "packed" / "deep" / "x",
                           folder / "link" / "x"}) {
    CheckError(paths.Add("--junit", file), ErrorKind::kUsage,
               "it would be written into the packed folder");
  }
  RequireOk(paths.Add("--junit", folder / "packed-too" / "x"));
}

TEST_CASE("what is no file, or lies nowhere, is refused before any work") {
  const TempFolder folder;
  OutputPaths paths;
  CheckError(paths.Add("--junit", folder.path()), ErrorKind::kUsage, "not the name of a file");
  CheckError(paths.Add("--junit", folder.path() / ""), ErrorKind::kUsage, "not the name of a file");
  CheckError(paths.Add("--junit", folder / "none" / "x"), ErrorKind::kSystem,
             "its folder cannot be opened");
}

}  // namespace
}  // namespace prepack::cli
