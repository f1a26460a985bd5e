// The power fails behind each change that a conversion makes to the disk, with all, some or nothing
// of what was not flushed: what has the output's name is the old output or the whole new one, and
// the next run, with --resume or without, makes the bytes of an undisturbed one.

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/tiny_model.h"
#include "prepack/base/random.h"
#include "prepack/convert/convert.h"
#include "prepack/convert/merge.h"
#include "recorded_disk.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "test_seed.h"

namespace prepack::testing {
namespace {

namespace fs = std::filesystem;

using FolderBytes = std::map<std::string, std::string>;

FolderBytes BytesOf(const fs::path& folder) {
  FolderBytes contents;
  if (!fs::exists(folder)) return contents;
  for (const auto& entry : fs::directory_iterator(folder)) {
    contents[entry.path().filename()] = Value(ReadTextFile(entry.path(), 1 << 20));
  }
  return contents;
}

// Something that makes `disk / "out"`, and can be done again.
class Run {
 public:
  Run() {
    TinyModel({"a", "b", "c"}).Write(source_ / "model");
    std::ofstream(source_ / "model" / "tokenizer.json") << "{}";
  }
  virtual ~Run() = default;
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  virtual Status Do() const = 0;
  // Everything that is there before.
  virtual void Prepare() const {}

  fs::path out() const { return disk_ / "out"; }
  const fs::path& disk() const { return disk_.path(); }

 protected:
  Status ConvertFor(const std::string& target, bool resume, Part part = {}) const {
    ConvertOptions options;
    options.source = source_ / "model";
    options.output = out();
    options.plan.target = target;
    options.shard_bytes = 700;  // several
    options.jobs = 1;
    options.replace = !resume;
    options.resume = resume;
    options.part = part;
    Progress progress;
    return Convert(options, progress).status();
  }

 private:
  TempFolder source_;
  TempFolder disk_;
};

class Fresh : public Run {
 public:
  explicit Fresh(bool resume) : resume_(resume) {}
  Status Do() const override { return ConvertFor("vllm-cpu", resume_); }

 private:
  bool resume_;
};

class Replacing : public Run {
 public:
  void Prepare() const override { RequireOk(ConvertFor("zentorch", false)); }
  Status Do() const override { return ConvertFor("vllm-cpu", false); }
};

class Merging : public Run {
 public:
  void Prepare() const override {
    for (uint32_t index : {1U, 2U}) RequireOk(ConvertFor("vllm-cpu", false, {index, 2}));
  }
  Status Do() const override {
    MergeOptions options;
    options.output = out();
    options.keep_parts = true;
    options.replace = true;
    Progress progress;
    return Merge(options, progress).status();
  }
};

// Gives how many times the power failed.
size_t LosePower(const Run& run) {
  SplitMix64 random(Seed(1));
  run.Prepare();
  const FolderBytes old = BytesOf(run.out());
  const RecordedDisk disk(run.disk());
  std::vector<RecordedChange> changes;
  {
    const ChangeRecorder recorder;
    RequireOk(run.Do());
    changes = recorder.changes();
  }
  const FolderBytes undisturbed = BytesOf(run.out());
  size_t losses = 0;
  for (size_t count = 0; count <= changes.size(); ++count) {
    for (const Unflushed what : {Unflushed::kAllThere, Unflushed::kAllLost, Unflushed::kAnyOfIt,
                                 Unflushed::kAnyOfIt, Unflushed::kAnyOfIt}) {
      INFO("behind change " << count << " of " << changes.size() << ", " << static_cast<int>(what));
      disk.Restore(changes, count, what, random);
      const FolderBytes left = BytesOf(run.out());
      REQUIRE((left == old || left == undisturbed));
      RequireOk(run.Do());
      REQUIRE(BytesOf(run.out()) == undisturbed);
      ++losses;
    }
  }
  // When the run has ended, its output is safe.
  disk.Restore(changes, changes.size(), Unflushed::kAllLost, random);
  REQUIRE(BytesOf(run.out()) == undisturbed);
  return losses;
}

TEST_CASE("the power fails while a conversion runs") {
  CHECK(LosePower(Fresh(false)) > 300);
}

TEST_CASE("the power fails while a conversion runs that can be resumed") {
  CHECK(LosePower(Fresh(true)) > 300);
}

TEST_CASE("the power fails while an output is replaced") {
  CHECK(LosePower(Replacing()) > 300);
}

TEST_CASE("the power fails while parts are merged") {
  CHECK(LosePower(Merging()) > 100);
}

}  // namespace
}  // namespace prepack::testing
