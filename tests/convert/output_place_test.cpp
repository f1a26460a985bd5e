#include "prepack/convert/finish_folder.h"

#include "catch.h"
#include "prepack/io/file.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

TEST_CASE("the output may not overlap the source") {
  TempFolder temp;
  std::filesystem::create_directory(temp / "source");
  std::filesystem::create_directory_symlink(temp / "source", temp / "link");
  const auto kind = [&](const std::filesystem::path& output) {
    const Status status = CheckOutputPlace(temp / "source", output);
    return status.ok() ? 0 : ExitCode(status);
  };
  CHECK(kind(temp / "output") == 0);
  CHECK(kind(temp / "source2") == 0);  // a common prefix is not a common folder
  CHECK(kind(temp / "source/../output") == 0);
  CHECK(kind(temp / "source") == 2);
  CHECK(kind(temp / "source/") == 2);
  CHECK(kind(temp / "source/inside/deep") == 2);
  CHECK(kind(temp / "link/inside") == 2);  // through a symbolic link
  CHECK(kind(temp.path()) == 2);           // contains the source
}

TEST_CASE("the way from the output to the source goes through no symbolic link") {
  TempFolder temp;
  std::filesystem::create_directories(temp / "models/source");
  std::filesystem::create_directories(temp / "deep/er");
  std::filesystem::create_directory_symlink(temp / "models/source", temp / "link");
  std::filesystem::create_directory_symlink(temp / "deep/er", temp / "out");
  CHECK(PathToSource(temp / "models/source", temp / "packed") == "../models/source");
  CHECK(PathToSource(temp / "models/source/", temp / "models/packed/") == "../source");
  CHECK(PathToSource(temp / "link", temp / "packed") == "../models/source");
  CHECK(PathToSource(temp / "link", temp / "out/packed") == "../../../models/source");
  CHECK(PathToSource(temp / "caf\xC3\xA9", temp / "packed") == "../caf\xC3\xA9");
  CHECK(PathToSource(temp / "caf\xE9", temp / "packed").empty());  // JSON could not hold it
  CHECK(PathToSource(temp / "a\nb", temp / "packed").empty());
}

TEST_CASE("an output that cannot fit is refused with both numbers") {
  TempFolder temp;
  CHECK(CheckFreeSpace(temp.path(), 0).ok());
  const Status status = CheckFreeSpace(temp.path(), UINT64_MAX / 2);
  REQUIRE_FALSE(status.ok());
  CHECK(ExitCode(status) == 4);
  CHECK(status.what() == "not enough space for the packed weights: No space left on device");
  CHECK(status.expected() == "9223372036854775807 bytes");
}

TEST_CASE("what files take on the disk does not count holes, or what is not there") {
  TempFolder temp;
  REQUIRE(Value(File::CreateNew(temp / "full")).Allocate(100'000).ok());
  REQUIRE(Value(File::CreateNew(temp / "sparse")).Resize(1'000'000).ok());
  std::filesystem::create_directory(temp / "folder");
  CHECK(BytesOnDisk(temp.path(), {"full"}) == 100'000);
  CHECK(BytesOnDisk(temp.path(), {"sparse", "missing", "folder"}) == 0);
}

}  // namespace
}  // namespace prepack::testing
