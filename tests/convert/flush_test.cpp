#include <cerrno>
#include <filesystem>

#include "catch.h"
#include "io_fault.h"
#include "prepack/convert/convert.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

Status ConvertSample(const std::filesystem::path& output, bool flush) {
  ConvertOptions options;
  options.source = Fixture("checkpoints/ct-w4a16-g32-asym");
  options.output = output;
  options.plan.target = "vllm-cpu";
  options.shard_bytes = 100'000;
  options.flush = flush;
  Progress progress;
  return Convert(options, progress).status();
}

size_t SyncsOf(const std::filesystem::path& output, bool flush) {
  const CallCounter calls;
  RequireOk(ConvertSample(output, flush));
  return calls.Of(posix::Call::kSync);
}

TEST_CASE("the shards are flushed to the disk unless that is left to the kernel") {
  const TempFolder folder;
  const size_t with = SyncsOf(folder / "a", true);
  const size_t without = SyncsOf(folder / "b", false);
  size_t shards = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "a")) {
    const std::filesystem::path name = entry.path().filename();
    shards += name.extension() == ".safetensors" ? 1 : 0;
    CHECK(Value(ReadTextFile(folder / "a" / name, 1 << 24)) ==
          Value(ReadTextFile(folder / "b" / name, 1 << 24)));
  }
  CHECK(shards > 1);
  CHECK(with == without + shards);
}

TEST_CASE("a flush that fails is no output") {
  const TempFolder folder;
  const IoFault fault(posix::Call::kSync, EIO);
  CHECK(ConvertSample(folder / "a", true).kind() == ErrorKind::kSystem);
  CHECK_FALSE(std::filesystem::exists(folder / "a"));
}

TEST_CASE("bytes that a network file system loses on the way are noticed without a flush") {
  const TempFolder folder;
  const IoFault fault(posix::Call::kClose, EDQUOT);
  CheckError(ConvertSample(folder / "a", false), ErrorKind::kSystem,
             "cannot write to it: Disk quota exceeded. Your disk quota is used up");
  CHECK_FALSE(std::filesystem::exists(folder / "a"));
  RequireOk(ConvertSample(folder / "a", true));  // those that are flushed have arrived
}

}  // namespace
}  // namespace prepack::testing
