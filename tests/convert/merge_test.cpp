#include "prepack/convert/merge.h"

#include <cerrno>

#include "catch.h"
#include "io_fault.h"
#include "prepack/convert/convert.h"
#include "prepack/io/output_folder.h"
#include "prepack/io/posix.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

// Two parts of a real checkpoint.
void MakeParts(const std::filesystem::path& output) {
  for (const uint32_t index : {1U, 2U}) {
    ConvertOptions options;
    options.source = Fixture("checkpoints/ct-w4a16-g128-sym");
    options.output = output;
    options.plan.target = "vllm-cpu";
    options.part = {index, 2};
    Progress progress;
    Value(Convert(options, progress));
  }
}

Result<MergeReport> MergeInto(const std::filesystem::path& output) {
  MergeOptions options;
  options.output = output;
  Progress progress;
  return Merge(options, progress);
}

TEST_CASE("where the file system has no hard links, shards are copied") {
  for (const int error : {EXDEV, EPERM, EOPNOTSUPP, EMLINK}) {
    const TempFolder folder;
    MakeParts(folder / "out");
    const IoFault fault(posix::Call::kLink, error);
    const MergeReport report = Value(MergeInto(folder / "out"));
    CHECK(report.shards.size() == 2);
    CHECK(std::filesystem::exists(folder / "out" / "model-00002-of-00002.safetensors"));
    CHECK_FALSE(std::filesystem::exists(folder / "out.part-00001-of-00002"));
  }
}

TEST_CASE("a merge that fails leaves the parts and nothing else") {
  const TempFolder folder;
  MakeParts(folder / "out");
  {
    const IoFault fault(posix::Call::kLink, EIO);
    CheckError(MergeInto(folder / "out").status(), ErrorKind::kSystem, "cannot link");
  }
  {
    const IoFault fault(posix::Call::kSync, EIO);
    CheckError(MergeInto(folder / "out").status(), ErrorKind::kSystem, "cannot flush");
  }
  CHECK_FALSE(std::filesystem::exists(folder / "out"));
  CHECK(Value(MergeInto(folder / "out")).parts == 2);
}

TEST_CASE("a part that cannot be removed is said, with the output in place") {
  const TempFolder folder;
  MakeParts(folder / "out");
  static int removals = 0;
  removals = 0;
  // What Create, Commit and the lock remove comes first, and what is in the way of the configs.
  posix::SetFaultHook(
      [](posix::Call call) { return call == posix::Call::kRemove && ++removals > 9 ? EACCES : 0; });
  const Status status = MergeInto(folder / "out").status();
  posix::SetFaultHook(nullptr);
  CheckError(status, ErrorKind::kSystem, "the packed folder is in place, but this part");
  CHECK(std::filesystem::exists(folder / "out" / kManifestName));
}

}  // namespace
}  // namespace prepack::testing
