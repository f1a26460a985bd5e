#include "shell_carrier.h"

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "catch.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::cli {

TEST_CASE("a command has the environment of when it was given") {
  const testing::TempFolder folder;
  setenv("PREPACK_TEST_VARIABLE", "before", 1);
  ShellCarrier carrier("--fetch", "printf '%s' \"$PREPACK_TEST_VARIABLE\" > {path} # {file}");
  setenv("PREPACK_TEST_VARIABLE", "after", 1);
  const std::atomic<bool> stop = false;
  testing::RequireOk(carrier.Check());
  testing::RequireOk(carrier.Carry("a", folder / "a", stop));
  unsetenv("PREPACK_TEST_VARIABLE");
  std::ifstream file(folder / "a");
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == "before");
}

}  // namespace prepack::cli
