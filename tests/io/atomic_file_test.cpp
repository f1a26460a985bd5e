#include "io/atomic_file.h"

#include <filesystem>

#include "catch.h"
#include "io/file.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

size_t Entries(const std::filesystem::path& folder) {
  size_t entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++entries;
  return entries;
}

TEST_CASE("A file is replaced whole") {
  const TempFolder folder;
  const auto path = folder / "out.xml";
  RequireOk(WriteFileAtomically(path, "one"));
  RequireOk(WriteFileAtomically(path, "two"));
  CHECK(Value(ReadTextFile(path, 100)) == "two");
  CHECK(Entries(folder.path()) == 1);
}

TEST_CASE("A symbolic link is replaced, not followed") {
  const TempFolder folder;
  RequireOk(WriteTextFile(folder / "precious", "mine"));
  std::filesystem::create_symlink("precious", folder / "out.xml");
  RequireOk(WriteFileAtomically(folder / "out.xml", "report"));
  CHECK(Value(ReadTextFile(folder / "precious", 100)) == "mine");
  CHECK(Value(ReadTextFile(folder / "out.xml", 100)) == "report");
}

TEST_CASE("A file that cannot be written leaves nothing behind") {
  const TempFolder folder;
  CheckError(WriteFileAtomically(folder / "none" / "out.xml", "x"), ErrorKind::kSystem, "none");
  CheckError(WriteFileAtomically(folder.path() / "", "x"), ErrorKind::kUsage, "not the name");
  std::filesystem::create_directory(folder / "taken");
  CheckError(WriteFileAtomically(folder / "taken", "x"), ErrorKind::kSystem, "cannot write it");
  CHECK(Entries(folder.path()) == 1);
}

}  // namespace
}  // namespace prepack::testing
