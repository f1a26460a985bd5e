#include "prepack/io/output_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include "catch.h"
#include "prepack/io/file.h"
#include "prepack/io/posix.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack {
namespace {

namespace fs = std::filesystem;
using testing::CheckError;
using testing::RequireOk;
using testing::TempFolder;
using testing::Value;

std::vector<std::string> Names(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

using Strings = std::vector<std::string>;

// A packed folder whose manifest is `text`.
void MakePacked(const fs::path& path, std::string_view text) {
  REQUIRE(fs::create_directory(path));
  RequireOk(WriteTextFile(path / kManifestName, text));
}

std::string Manifest(const fs::path& path) {
  return Value(ReadTextFile(path / kManifestName, 100));
}

// Create, one file, Commit.
Status WriteOutput(const fs::path& path, bool replace, std::string_view text) {
  Result<OutputFolder> output = OutputFolder::Create(path, replace);
  if (!output.ok()) return output.status();
  Status status = WriteTextFile(output->path() / kManifestName, text);
  if (!status.ok()) return status;
  return output->Commit();
}

// Lets call number `fail_at` (counted from 0) fail, and every call of the kind `unsupported` too.
struct Faults {
  static inline int count = 0;
  static inline int fail_at = -1;
  static inline std::optional<posix::Call> failing_kind;
  static inline int kind_errnum = 0;

  Faults() {
    count = 0;
    fail_at = -1;
    failing_kind.reset();
    posix::SetFaultHook([](posix::Call call) {
      if (count++ == fail_at) return EIO;
      return failing_kind == call ? kind_errnum : 0;
    });
  }
  ~Faults() { posix::SetFaultHook(nullptr); }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;
};

TEST_CASE("an output appears by its commit, and nothing else stays") {
  const TempFolder folder;
  {
    OutputFolder output = Value(OutputFolder::Create(folder / "out", false));
    CHECK(output.path() == folder / ".out.prepack-partial");
    RequireOk(WriteTextFile(output.path() / kManifestName, "new"));
    CHECK(Names(folder.path()) == Strings{".out.prepack-lock", ".out.prepack-partial"});
    RequireOk(output.Commit());
    CHECK(Names(folder.path()) == Strings{"out"});
  }
  CHECK(Names(folder.path()) == Strings{"out"});
  CHECK(Manifest(folder / "out") == "new");
  CHECK(Names(folder / "out") == Strings{"prepack.json"});
}

TEST_CASE("without a commit nothing stays") {
  const TempFolder folder;
  {
    OutputFolder output = Value(OutputFolder::Create(folder / "out", false));
    RequireOk(WriteTextFile(output.path() / "a", "x"));
    fs::create_directories(output.path() / "b" / "c");
    RequireOk(WriteTextFile(output.path() / "b" / "c" / "d", "x"));
  }
  CHECK(Names(folder.path()).empty());
}

TEST_CASE("moving an output moves the duty to clean up") {
  const TempFolder folder;
  {
    OutputFolder first = Value(OutputFolder::Create(folder / "one", false));
    {
      OutputFolder moved = std::move(first);
      CHECK(moved.path() == folder / ".one.prepack-partial");
    }
    CHECK(Names(folder.path()).empty());
    OutputFolder second = Value(OutputFolder::Create(folder / "two", false));
    second = Value(OutputFolder::Create(folder / "three", false));
    RequireOk(second.Commit());
  }
  CHECK(Names(folder.path()) == Strings{"three"});
}

TEST_CASE("the permissions of an output come from the umask") {
  const TempFolder folder;
  const mode_t old_mask = ::umask(027);
  const Status status = WriteOutput(folder / "out", false, "new");
  ::umask(old_mask);
  RequireOk(status);
  struct stat info {};
  REQUIRE(::stat((folder / "out").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0750);
}

TEST_CASE("an existing output is replaced only when asked to") {
  const TempFolder folder;
  MakePacked(folder / "out", "old");
  CheckError(WriteOutput(folder / "out", false, "new"), ErrorKind::kUsage,
             "/out: already exists. --force replaces it");
  CHECK(Manifest(folder / "out") == "old");
  CHECK(Names(folder.path()) == Strings{"out"});

  RequireOk(WriteOutput(folder / "out", true, "new"));
  CHECK(Manifest(folder / "out") == "new");
  CHECK(Names(folder.path()) == Strings{"out"});
}

TEST_CASE("an empty folder is an existing output too") {
  const TempFolder folder;
  fs::create_directory(folder / "out");
  CheckError(WriteOutput(folder / "out", false, "new"), ErrorKind::kUsage, "already exists");
  RequireOk(WriteOutput(folder / "out", true, "new"));
  CHECK(Manifest(folder / "out") == "new");
}

TEST_CASE("what is not a packed folder is never replaced") {
  const TempFolder folder;
  const bool replace = GENERATE(false, true);
  SECTION("someone's folder") {
    fs::create_directory(folder / "out");
    RequireOk(WriteTextFile(folder / "out" / "thesis.tex", "x"));
    CheckError(
        WriteOutput(folder / "out", replace, "new"), ErrorKind::kUsage,
        "/out: it exists, is not empty and is not a packed folder (found no prepack.json in it). "
        "Choose another output folder");
    CHECK(Names(folder / "out") == Strings{"thesis.tex"});
  }
  SECTION("a file") {
    RequireOk(WriteTextFile(folder / "out", "x"));
    CheckError(WriteOutput(folder / "out", replace, "new"), ErrorKind::kUsage,
               "/out: it exists and is not a folder");
    CHECK(Value(ReadTextFile(folder / "out", 1)) == "x");
  }
  SECTION("a link to a packed folder") {
    MakePacked(folder / "real", "old");
    fs::create_symlink("real", folder / "out");
    CheckError(WriteOutput(folder / "out", replace, "new"), ErrorKind::kUsage,
               "/out: it exists and is a symbolic link");
    CHECK(Manifest(folder / "real") == "old");
  }
  SECTION("a link to nothing") {
    fs::create_symlink("gone", folder / "out");
    CheckError(WriteOutput(folder / "out", replace, "new"), ErrorKind::kUsage, "symbolic link");
  }
}

TEST_CASE("what appears under the name meanwhile is treated like what was there before") {
  const TempFolder folder;
  SECTION("another output") {
    OutputFolder output = Value(OutputFolder::Create(folder / "out", false));
    MakePacked(folder / "out", "theirs");
    CheckError(output.Commit(), ErrorKind::kUsage, "already exists");
    CHECK(Manifest(folder / "out") == "theirs");
  }
  SECTION("another output, and replacing is allowed") {
    OutputFolder output = Value(OutputFolder::Create(folder / "out", true));
    RequireOk(WriteTextFile(output.path() / kManifestName, "new"));
    MakePacked(folder / "out", "theirs");
    RequireOk(output.Commit());
    CHECK(Manifest(folder / "out") == "new");
  }
  SECTION("someone's folder") {
    OutputFolder output = Value(OutputFolder::Create(folder / "out", true));
    fs::create_directory(folder / "out");
    RequireOk(WriteTextFile(folder / "out" / "thesis.tex", "x"));
    CheckError(output.Commit(), ErrorKind::kUsage, "is not a packed folder");
    CHECK(Names(folder / "out") == Strings{"thesis.tex"});
  }
}

TEST_CASE("paths are understood in every spelling") {
  const TempFolder folder;
  SECTION("trailing slashes") {
    RequireOk(WriteOutput(folder / "out//", false, "new"));
    CHECK(Manifest(folder / "out") == "new");
  }
  SECTION("relative, and the working directory changes before the commit") {
    const fs::path old = fs::current_path();
    fs::current_path(folder.path());
    Result<OutputFolder> output = OutputFolder::Create("out", false);
    fs::current_path(old);
    RequireOk(output.status());
    RequireOk(output->Commit());
    CHECK(Names(folder.path()) == Strings{"out"});
  }
  SECTION("no name at all") {
    for (const char* path : {"", ".", "..", "/", "./", "out/..", "//"}) {
      INFO(path);
      CheckError(OutputFolder::Create(path, true).status(), ErrorKind::kUsage,
                 "does not name a folder to create. Give the output folder a name");
    }
  }
  SECTION("the parent is missing") {
    CheckError(OutputFolder::Create(folder / "no" / "out", false).status(), ErrorKind::kSystem,
               "/no: the parent folder of the output does not exist: No such file or "
               "directory. Create it first: mkdir -p '" +
                   (folder / "no").string() + "'");
    CHECK(Names(folder.path()).empty());
  }
  SECTION("the parent is a file") {
    RequireOk(WriteTextFile(folder / "file", "x"));
    CheckError(OutputFolder::Create(folder / "file" / "out", false).status(), ErrorKind::kSystem,
               "/file: cannot create the output in it: Not a directory");
  }
  SECTION("the name is too long for its siblings") {
    CheckError(OutputFolder::Create(folder / std::string(250, 'x'), false).status(),
               ErrorKind::kSystem, "File name too long");
  }
}

TEST_CASE("what a killed run left is removed") {
  const TempFolder folder;
  fs::create_directory(folder / ".out.prepack-partial");
  RequireOk(WriteTextFile(folder / ".out.prepack-partial" / "stale", "x"));
  RequireOk(WriteTextFile(folder / ".out.prepack-lock", ""));
  RequireOk(WriteOutput(folder / "out", false, "new"));
  CHECK(Names(folder.path()) == Strings{"out"});
  CHECK(Names(folder / "out") == Strings{"prepack.json"});
}

TEST_CASE("what an unfinished run leaves is kept when the next one wants it") {
  const TempFolder folder;
  const fs::path path = folder / "packed";
  {
    const OutputFolder output = Value(OutputFolder::Create(path, false, Leftovers::kKeep));
    RequireOk(WriteTextFile(output.path() / "shard", "half"));
    RequireOk(WriteTextFile(output.journal_path(), "notes"));
    CHECK(output.journal_path() == folder / ".packed.prepack-journal");
  }
  CHECK(Names(folder.path()) == Strings{".packed.prepack-journal", ".packed.prepack-partial"});
  {
    const OutputFolder output = Value(OutputFolder::Create(path, false, Leftovers::kKeep));
    CHECK(Value(ReadTextFile(output.path() / "shard", 100)) == "half");
    CHECK(Value(ReadTextFile(output.journal_path(), 100)) == "notes");
    CHECK_FALSE(OutputFolder::Create(path, false, Leftovers::kKeep).ok());  // it is locked
  }
  OutputFolder output = Value(OutputFolder::Create(path, false, Leftovers::kKeep));
  RequireOk(output.Commit());
  CHECK(Names(folder.path()) == Strings{"packed"});
  CHECK(Names(path) == Strings{"shard"});
}

TEST_CASE("leftovers that nobody wants go, and so do notes without their folder") {
  const TempFolder folder;
  const fs::path path = folder / "packed";
  const auto leave = [&] {
    const OutputFolder output = Value(OutputFolder::Create(path, false, Leftovers::kKeep));
    RequireOk(WriteTextFile(output.path() / "shard", "half"));
    RequireOk(WriteTextFile(output.journal_path(), "notes"));
  };
  leave();
  {
    const OutputFolder output = Value(OutputFolder::Create(path, false));
    CHECK(Names(output.path()).empty());
    CHECK_FALSE(fs::exists(output.journal_path()));
  }
  CHECK(Names(folder.path()).empty());
  leave();
  fs::remove_all(folder / ".packed.prepack-partial");
  const OutputFolder output = Value(OutputFolder::Create(path, false, Leftovers::kKeep));
  CHECK_FALSE(fs::exists(output.journal_path()));
}

TEST_CASE("a part of an output is replaced like an output") {
  const TempFolder folder;
  const fs::path path = folder / "part";
  REQUIRE(fs::create_directory(path));
  RequireOk(WriteTextFile(path / kPartName, "{}"));
  CheckError(OutputFolder::Create(path, false).status(), ErrorKind::kUsage, "already exists");
  RequireOk(WriteOutput(path, true, "new"));
  CHECK(Names(path) == Strings{std::string(kManifestName)});
}

TEST_CASE("a hidden name that is a link is removed, not followed") {
  const TempFolder folder;
  fs::create_directory(folder / "precious");
  RequireOk(WriteTextFile(folder / "precious" / "data", "x"));
  fs::create_directory_symlink("precious", folder / ".out.prepack-partial");
  RequireOk(WriteOutput(folder / "out", false, "new"));
  CHECK(Names(folder / "precious") == Strings{"data"});
  CHECK(Names(folder.path()) == Strings{"out", "precious"});
}

TEST_CASE("one output has one writer") {
  const TempFolder folder;
  {
    OutputFolder output = Value(OutputFolder::Create(folder / "out", false));
    CheckError(OutputFolder::Create(folder / "out", true).status(), ErrorKind::kUsage,
               "/out: another prepack is writing this output");
    CHECK(fs::exists(output.path()));
    RequireOk(WriteOutput(folder / "other", false, "new"));
    RequireOk(output.Commit());
  }
  RequireOk(WriteOutput(folder / "out", true, "again"));
}

// The other process is done, and removes its lock file, just before we get the lock on it.
TEST_CASE("a lock on a file that is gone does not count") {
  const TempFolder folder;
  static fs::path lock_path;
  lock_path = folder / ".out.prepack-lock";
  static int locks = 0;
  locks = 0;
  posix::SetFaultHook([](posix::Call call) {
    if (call == posix::Call::kLock && locks++ == 0) fs::remove(lock_path);
    return 0;
  });
  Result<OutputFolder> output = OutputFolder::Create(folder / "out", false);
  posix::SetFaultHook(nullptr);
  RequireOk(output.status());
  CHECK(locks == 2);
  CHECK(fs::exists(lock_path));
}

TEST_CASE("the lock of a process that was killed is free") {
  const TempFolder folder;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const Result<OutputFolder> output = OutputFolder::Create(folder / "out", false);
    const char byte = output.ok() ? 'y' : 'n';
    if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  CHECK(byte == 'y');
  CheckError(OutputFolder::Create(folder / "out", false).status(), ErrorKind::kUsage,
             "another prepack is writing this output");
  REQUIRE(::kill(child, SIGKILL) == 0);
  int wait_status = 0;
  REQUIRE(::waitpid(child, &wait_status, 0) == child);
  ::close(ready[0]);
  ::close(ready[1]);
  CHECK(Names(folder.path()) == Strings{".out.prepack-lock", ".out.prepack-partial"});
  RequireOk(WriteOutput(folder / "out", false, "new"));
  CHECK(Names(folder.path()) == Strings{"out"});
}

TEST_CASE("file systems without the newer renames") {
  const TempFolder folder;
  SECTION("no exchange: the old output steps aside for a moment") {
    MakePacked(folder / "out", "old");
    Faults faults;
    Faults::failing_kind = posix::Call::kExchange;
    Faults::kind_errnum = EINVAL;
    RequireOk(WriteOutput(folder / "out", true, "new"));
    CHECK(Manifest(folder / "out") == "new");
    CHECK(Names(folder.path()) == Strings{"out"});
  }
  SECTION("power was lost at that moment: the old output comes back") {
    MakePacked(folder / ".out.prepack-old", "old");
    CheckError(WriteOutput(folder / "out", false, "new"), ErrorKind::kUsage, "already exists");
    CHECK(Manifest(folder / "out") == "old");
    CHECK(Names(folder.path()) == Strings{"out"});
  }
  SECTION("power was lost at that moment, and the old output cannot come back") {
    MakePacked(folder / ".out.prepack-old", "old");
    Faults faults;
    Faults::failing_kind = posix::Call::kRename;
    Faults::kind_errnum = EIO;
    CheckError(WriteOutput(folder / "out", false, "new"), ErrorKind::kSystem,
               ".out.prepack-old: cannot restore the old output, which an interrupted run had "
               "moved aside");
    CHECK(Manifest(folder / ".out.prepack-old") == "old");
  }
  SECTION("power was lost at that moment, and nobody can tell whether the old output is there") {
    for (int n = 0; n < 20; ++n) {
      MakePacked(folder / ".out.prepack-old", "old");
      Status status;
      {
        Faults faults;
        Faults::fail_at = n;
        status = WriteOutput(folder / "out", false, "new");
      }
      INFO("call " << n << ": " << status.ToString());
      REQUIRE_FALSE(status.ok());
      const fs::path old = fs::exists(folder / "out") ? "out" : ".out.prepack-old";
      CHECK(Manifest(folder / old) == "old");
      fs::remove_all(folder / "out");
      fs::remove_all(folder / ".out.prepack-old");
    }
  }
  SECTION("power was lost a moment later: the old output goes") {
    MakePacked(folder / ".out.prepack-old", "old");
    MakePacked(folder / "out", "new");
    RequireOk(WriteOutput(folder / "out", true, "newer"));
    CHECK(Manifest(folder / "out") == "newer");
    CHECK(Names(folder.path()) == Strings{"out"});
  }
  SECTION("locks that do not work are not ignored") {
    Faults faults;
    Faults::failing_kind = posix::Call::kLock;
    Faults::kind_errnum = ENOLCK;
    CheckError(OutputFolder::Create(folder / "out", false).status(), ErrorKind::kSystem,
               "cannot lock the output: No locks available");
    CHECK(Names(folder.path()).empty());
    // One that was there may be another's.
    RequireOk(WriteTextFile(folder / ".out.prepack-lock", ""));
    CHECK_FALSE(OutputFolder::Create(folder / "out", false).ok());
    CHECK(Names(folder.path()) == Strings{".out.prepack-lock"});
  }
}

// Every system call of a run fails once, in its turn: the output is then the old or the new one,
// whole, and the next run is not disturbed by what stayed.
TEST_CASE("whichever call fails, the output is the old or the new one") {
  const bool can_exchange = GENERATE(true, false);
  const bool has_old = GENERATE(true, false);
  int failures = 0;
  for (int n = 0;; ++n) {
    const TempFolder folder;
    if (has_old) MakePacked(folder / "out", "old");
    Status status;
    {
      Faults faults;
      Faults::fail_at = n;
      if (!can_exchange) Faults::failing_kind = posix::Call::kExchange;
      Faults::kind_errnum = EINVAL;
      status = WriteOutput(folder / "out", true, "new");
      if (Faults::count <= n) break;  // the run has fewer calls
    }
    INFO("call " << n << ": " << status.ToString());
    const bool is_in_place = status.ok() || status.ToString().find("in place") != std::string::npos;
    if (!status.ok()) ++failures;
    if (is_in_place) {
      CHECK(Manifest(folder / "out") == "new");
    } else if (has_old) {
      CHECK(static_cast<int>(status.kind()) == static_cast<int>(ErrorKind::kSystem));
      CHECK(Manifest(folder / "out") == "old");
    } else {
      CHECK_FALSE(fs::exists(folder / "out"));
    }
    RequireOk(WriteOutput(folder / "out", true, "again"));
    CHECK(Manifest(folder / "out") == "again");
    CHECK(Names(folder.path()) == Strings{"out"});
  }
  CHECK(failures >= 11);
}

TEST_CASE("slashes at the end of a folder do not count") {
  CHECK(WithoutTrailingSlashes("out") == "out");
  CHECK(WithoutTrailingSlashes("a/out//") == "a/out");
  CHECK(WithoutTrailingSlashes("/") == "/");
}

}  // namespace
}  // namespace prepack
