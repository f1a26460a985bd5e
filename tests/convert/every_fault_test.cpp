// Each system call of a conversion fails once: the first, the second, and so on to the last. What
// is left is the old output or the whole new one, and another run makes the bytes of an undisturbed
// one.

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "catch.h"
#include "prepack/base/random.h"
#include "prepack/convert/convert.h"
#include "prepack/io/file.h"
#include "prepack/io/posix.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "test_seed.h"

namespace prepack::testing {
namespace {

namespace fs = std::filesystem;
using posix::Call;

// Makes the n-th call fail (counted from 0), and, if `for_good`, all calls of that kind after it:
// a full disk stays full.
class FaultAt {
 public:
  FaultAt(size_t n, int error, bool for_good) {
    n_ = n;
    error_ = error;
    for_good_ = for_good;
    calls_ = 0;
    hit_ = -1;
    posix::SetFaultHook(Ask);
  }
  ~FaultAt() { posix::SetFaultHook(nullptr); }
  FaultAt(const FaultAt&) = delete;
  FaultAt& operator=(const FaultAt&) = delete;

  // The call that failed first; none when there were fewer.
  static std::optional<Call> Hit() {
    return hit_ < 0 ? std::nullopt : std::optional(static_cast<Call>(hit_.load()));
  }

 private:
  static int Ask(Call call) {
    const int kind = static_cast<int>(call);
    if (calls_++ == n_) {
      hit_ = kind;
      return error_;
    }
    return for_good_ && kind == hit_ ? error_ : 0;
  }

  static inline size_t n_ = 0;
  static inline int error_ = 0;
  static inline bool for_good_ = false;
  static inline std::atomic<size_t> calls_ = 0;
  static inline std::atomic<int> hit_ = -1;
};

// All files of a folder with their bytes; empty where there is no folder.
using Contents = std::map<std::string, std::string>;

Contents ContentsOf(const fs::path& folder) {
  Contents contents;
  if (!fs::exists(folder)) return contents;
  for (const auto& entry : fs::directory_iterator(folder)) {
    contents[entry.path().filename()] = Value(ReadTextFile(entry.path(), 1 << 24));
  }
  return contents;
}

ConvertOptions PlainOptions(bool resume) {
  ConvertOptions options;
  options.source = Fixture("checkpoints/ct-w4a16-g32-asym");
  options.plan.target = "vllm-cpu";
  options.shard_bytes = 400'000;  // several
  options.jobs = 1;
  options.resume = resume;
  return options;
}

// What tools/soak varies: another model, and what is done with it.
ConvertOptions SeededOptions(uint64_t seed) {
  static constexpr std::array kCheckpoints = {
      "ar-w4-sym-mixed", "awq-gemm-g128",         "ct-fp8-block",
      "ct-w8a8-dynamic", "ct-w4a16-g128-sharded", "gptqmodel-w4-actorder-g128"};
  static constexpr std::array kTargets = {"vllm-cpu", "zentorch", "onednn"};
  static constexpr std::array kShardBytes = {200'000, 400'000, 5'000'000};
  SplitMix64 random(seed);
  ConvertOptions options;
  options.source = Fixture(fmt::format("checkpoints/{}", kCheckpoints[random.Below(6)]));
  options.plan.target = kTargets[random.Below(3)];
  options.plan.fallback = Fallback::kDequantize;  // some targets have no layout for some of these
  options.plan.fuse = random.Below(2) == 0;
  options.shard_bytes = static_cast<uint64_t>(kShardBytes[random.Below(3)]);
  options.jobs = static_cast<unsigned>(1 + random.Below(4));
  options.resume = random.Below(2) == 0;
  options.flush = random.Below(4) != 0;
  const auto parts = static_cast<uint32_t>(1 + random.Below(3));
  options.part = {.index = static_cast<uint32_t>(1 + random.Below(parts)), .count = parts};
  return options;
}

// A conversion that is disturbed over and over, into a folder where there is nothing, or another
// packed folder to be replaced.
class Conversions {
 public:
  Conversions(ConvertOptions options, bool replace) : options_(std::move(options)) {
    RequireOk(Run("undisturbed", options_.plan.target));
    if (replace) {
      RequireOk(Run("old", options_.plan.target == "zentorch" ? "vllm-cpu" : "zentorch"));
    }
    undisturbed_ = ContentsOf(Made("undisturbed"));
    old_ = ContentsOf(Made("old"));
  }

  // One run in which the n-th call fails, and one that must put everything right. False when there
  // are not so many calls.
  bool Disturb(size_t n, int error, bool for_good) {
    const fs::path output = Made("out");
    if (!old_.empty()) fs::copy(Made("old"), output);
    std::optional<Call> hit;
    Status status;
    {
      const FaultAt fault(n, error, for_good);
      status = Run("out", options_.plan.target);
      hit = FaultAt::Hit();
    }
    INFO("call " << n << (hit ? " of kind " + std::to_string(static_cast<int>(*hit)) : ", none")
                 << ", errno " << error << (for_good ? " for good: " : ": ") << status.ToString());
    CheckLeft(status, ContentsOf(output));
    if (!hit) RequireOk(status);
    const bool harmless = error == EINTR || error == posix::kShort || hit == Call::kWriteback;
    // The lock is removed last, and it is no harm when it stays.
    if (hit && hit != Call::kRemove) REQUIRE(status.ok() == harmless);
    if (!status.ok()) CheckHint(status, error);
    // What could not be removed stays; the next run removes it.
    const bool clean = !options_.resume && hit != Call::kRemove;
    if (clean) REQUIRE(Siblings() == (ContentsOf(output).empty() ? 0 : 1));

    RequireOk(Run("out", options_.plan.target));
    REQUIRE(ContentsOf(output) == undisturbed_);
    REQUIRE(Siblings() == 1);
    fs::remove_all(output);
    return hit.has_value();
  }

 private:
  // Where the output of that name, or its part, is made.
  fs::path Made(const std::string& name) const {
    return options_.part.IsWhole() ? folder_ / name : PartFolder(folder_ / name, options_.part);
  }

  Status Run(const std::string& name, const std::string& target) const {
    ConvertOptions options = options_;
    options.output = folder_ / name;
    options.plan.target = target;
    options.replace = true;
    Progress progress;
    return Convert(options, progress).status();
  }

  // The system's words, and what to do; where the new output is in place that is said instead.
  static void CheckHint(const Status& status, int error) {
    const Status expected = SystemError("", "", error);
    REQUIRE(status.what().ends_with(expected.what()));
    REQUIRE_FALSE(expected.hint().empty());
    const bool in_place = status.hint().find("in place") != std::string::npos;
    if (!in_place) REQUIRE(status.hint() == expected.hint());
  }

  void CheckLeft(const Status& status, const Contents& left) const {
    if (status.ok()) {
      REQUIRE(left == undisturbed_);
      return;
    }
    REQUIRE(status.kind() == ErrorKind::kSystem);
    const bool in_place = status.ToString().find("in place") != std::string::npos;
    REQUIRE(left == (in_place ? undisturbed_ : old_));
  }

  // How many names there are besides those of the constructor.
  size_t Siblings() const {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      count += entry.path() != Made("undisturbed") && entry.path() != Made("old") ? 1 : 0;
    }
    return count;
  }

  TempFolder folder_;
  ConvertOptions options_;
  Contents undisturbed_;
  Contents old_;
};

TEST_CASE("whichever system call fails, the output is the old one or the whole new one") {
  for (const bool resume : {false, true}) {
    for (const bool replace : {false, true}) {
      Conversions conversions(PlainOptions(resume), replace);
      INFO((resume ? "resume " : "") << (replace ? "replace" : ""));
      size_t calls = 0;
      while (conversions.Disturb(calls, EIO, false)) ++calls;
      CHECK(calls > 150);
      size_t calls_of_full_disk = 0;
      while (conversions.Disturb(calls_of_full_disk, ENOSPC, true)) ++calls_of_full_disk;
      CHECK(calls_of_full_disk == calls);
    }
  }
}

// With several threads the n-th call is another one each time.
TEST_CASE("faults do no harm to conversions of any kind") {
  const uint64_t seed = Seed(1);
  INFO("seed " << seed);
  SplitMix64 random(~seed);
  Conversions conversions(SeededOptions(seed), random.Below(2) == 0);
  static constexpr std::array kErrors = {EIO, ENOSPC, EINTR, posix::kShort};
  const int error = kErrors[random.Below(4)];
  size_t calls = 0;
  while (conversions.Disturb(calls, error, error == ENOSPC)) ++calls;
  CHECK(calls > 20);
}

// Of a full quota, and a limit for the size of files.
TEST_CASE("whatever the system's reason, it is told with what to do, and nothing is left") {
  ConvertOptions options = PlainOptions(false);
  options.flush = false;
  Conversions conversions(options, true);
  for (const int error : {EDQUOT, EFBIG}) {
    size_t calls = 0;
    while (conversions.Disturb(calls, error, true)) ++calls;
    CHECK(calls > 50);
  }
}

TEST_CASE("calls that a signal interrupts, or that do half of their work, do no harm") {
  Conversions conversions(PlainOptions(false), false);
  for (const int fault : {EINTR, posix::kShort}) {
    size_t calls = 0;
    while (conversions.Disturb(calls, fault, false)) ++calls;
    CHECK(calls > 50);
  }
}

}  // namespace
}  // namespace prepack::testing
