// A file is cut, grows, or is replaced by another while it is read: at each system call of each
// verb, one after the other. It ends with an error of the input, or with what the file said before
// or says now; never with a signal.

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/tiny_model.h"
#include "io_fault.h"
#include "prepack/base/progress.h"
#include "prepack/check/check.h"
#include "prepack/convert/convert.h"
#include "prepack/diff/diff.h"
#include "prepack/inspect/inspect.h"
#include "prepack/io/file.h"
#include "prepack/io/output_folder.h"
#include "prepack/io/posix.h"
#include "prepack/verify/verify.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

namespace fs = std::filesystem;

// A source, an equal one, and what was packed of it.
class Folders {
 public:
  Folders() {
    TestCheckpoint model = TinyModel({"a", "b"});
    model.config["tie_word_embeddings"] = true;
    // A module that is a copy of another would be a finding, and so would copied scales.
    for (std::byte& code : model.At("b.weight_packed").bytes) code ^= std::byte{0x5A};
    std::vector<std::byte>& scales = model.At("b.weight_scale").bytes;
    for (size_t i = 0; i < scales.size(); i += 2) scales[i] ^= std::byte{0x10};
    for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
      model.tensors.push_back({name, "BF16", {2, 2}, Hex("80 3f 00 40 80 3f 00 40")});
    }
    model.Write(temp_ / "source");
    model.At("norm").dtype = "F16";  // of other values: compared as floats
    model.At("norm").bytes = Hex("00 3c 00 3c");
    model.Write(temp_ / "twin");
    RequireOk(Convert("packed"));
    fs::copy(temp_ / "packed", temp_ / "damaged");
    // Of a shard whose header cannot be read, tensors are read one by one.
    std::fstream(temp_ / "damaged" / "model.safetensors", std::ios::in | std::ios::out) << '\xFF';
  }
  fs::path operator/(const std::string& name) const { return temp_ / name; }

  // Each says whether all was as in an undisturbed run.
  Result<bool> Convert() const {
    fs::remove_all(temp_ / "out");
    if (Status status = Convert("out"); !status.ok()) return status;
    for (const auto& entry : fs::directory_iterator(temp_ / "out")) {
      if (Text(entry.path()) != Text(temp_ / "packed" / entry.path().filename())) return false;
    }
    return true;
  }
  Result<bool> Verify() const { return VerdictIs(LevelState::kPassed, "packed"); }
  Result<bool> VerifyDamaged() const { return VerdictIs(LevelState::kFailed, "damaged"); }
  Result<bool> Check() const {
    Progress progress;
    const Result<CheckReport> report =
        prepack::Check({.source = temp_ / "source", .baseline = {}, .jobs = 1}, progress);
    if (!report.ok()) return report.status();
    return report->verdict == CheckVerdict::kSound;
  }
  Result<bool> Diff() const {
    Progress progress;
    const Result<DiffReport> report = prepack::Diff(
        {.a = temp_ / "source", .b = temp_ / "twin", .module = {}, .jobs = 1}, progress);
    if (!report.ok()) return report.status();
    return report->Same();
  }
  Result<bool> Inspect() const {
    for (const char* folder : {"source", "packed"}) {
      const Result<InspectReport> report = prepack::Inspect(temp_ / folder);
      if (!report.ok()) return report.status();
      if (report->unreadable || report->modules.size() != 2) return false;
    }
    return true;
  }

 private:
  Result<bool> VerdictIs(LevelState verdict, const char* folder) const {
    VerifyOptions options;
    options.folder = temp_ / folder;
    options.source = temp_ / "source";
    options.engine = EngineChoice::kReference;
    options.jobs = 1;
    Progress progress;
    const Result<VerifyReport> report = prepack::Verify(options, progress);
    if (!report.ok()) return report.status();
    return report->Verdict() == verdict;
  }
  static std::string Text(const fs::path& path) { return Value(ReadTextFile(path, 1 << 20)); }
  Status Convert(const std::string& output) const {
    ConvertOptions options;
    options.source = temp_ / "source";
    options.output = temp_ / output;
    options.plan.target = "vllm-cpu";
    options.jobs = 1;
    options.flush = false;
    Progress progress;
    return prepack::Convert(options, progress).status();
  }

  TempFolder temp_;
};

struct Verb {
  const char* name;
  Result<bool> (Folders::*run)() const;
  std::vector<std::string> files;  // that it reads
  bool reports_damage = false;     // else there is an error
};

struct Change {
  const char* name;
  void (*apply)(const fs::path& path);
};

const std::vector<Change> kChanges = {
    {"cut to half", [](const fs::path& path) { fs::resize_file(path, fs::file_size(path) / 2); }},
    {"cut to nothing", [](const fs::path& path) { fs::resize_file(path, 0); }},
    {"grown", [](const fs::path& path) { fs::resize_file(path, fs::file_size(path) + 5000); }},
    {"replaced by a shorter one", [](const fs::path& path) {
       fs::copy_file(path, path.string() + ".new");
       fs::resize_file(path.string() + ".new", 40);
       fs::rename(path.string() + ".new", path);
     }}};

// With the change at the n-th call. False when there were fewer.
bool RunWith(const Folders& folders, const Verb& verb, const Change& change, const fs::path& path,
             size_t n) {
  Result<bool> same = false;
  bool happened = false;
  {
    const AtCall before(n, [&] {
      change.apply(path);
      return 0;
    });
    same = (folders.*verb.run)();
    happened = AtCall::Happened();
  }
  INFO("before call " << n << ": " << same.status().ToString());
  if (!same.ok()) {
    const ErrorKind kind = same.status().kind();
    REQUIRE((kind == ErrorKind::kMalformed || kind == ErrorKind::kUnsupported));
    REQUIRE_FALSE(same.status().where().empty());
  }
  // Before anything was read it is a damaged folder like any other.
  if (n == 0 && happened) REQUIRE_FALSE((same.ok() && *same));
  if (!verb.reports_damage) REQUIRE((!same.ok() || *same));
  if (!happened) REQUIRE((same.ok() && *same));
  return happened;
}

const std::vector<Verb> kStopping = {{"convert", &Folders::Convert, {}},
                                     {"check", &Folders::Check, {}},
                                     {"diff", &Folders::Diff, {}},
                                     {"verify", &Folders::Verify, {}},
                                     {"verify damaged", &Folders::VerifyDamaged, {}}};

// Asks to stop when something looks for the n-th time whether it is to.
class StopAtLook {
 public:
  explicit StopAtLook(size_t n) {
    n_ = n;
    looks_ = 0;
    SetCancellationHook([] {
      if (looks_++ == n_) RequestCancellation();
    });
  }
  ~StopAtLook() {
    SetCancellationHook(nullptr);
    ResetCancellation();
  }
  StopAtLook(const StopAtLook&) = delete;
  StopAtLook& operator=(const StopAtLook&) = delete;

  static bool Happened() { return looks_ > n_; }

 private:
  static inline std::atomic<size_t> n_ = 0;
  static inline std::atomic<size_t> looks_ = 0;
};

TEST_CASE("a verb that sees that it is to stop, wherever it looks, stops there") {
  const Folders folders;
  for (const Verb& verb : kStopping) {
    size_t looks = 0;
    for (;; ++looks) {
      const StopAtLook stop(looks);
      const Result<bool> same = (folders.*verb.run)();
      INFO(verb.name << " at look " << looks << ": " << same.status().ToString());
      if (!StopAtLook::Happened()) {
        REQUIRE((same.ok() && *same));
        break;
      }
      REQUIRE_FALSE(same.ok());
      REQUIRE(same.status().kind() == ErrorKind::kInterrupted);
      REQUIRE_FALSE(same.status().where().empty());
    }
    INFO(verb.name);
    CHECK(looks > 4);
  }
}

TEST_CASE("a verb that is asked to stop at any of its calls ends soon, and says so") {
  const Folders folders;
  for (const Verb& verb : kStopping) {
    size_t interrupted = 0;
    bool happened = true;
    for (size_t n = 0; happened; ++n) {
      const AtCall before(n, [] {
        RequestCancellation();
        return 0;
      });
      const Result<bool> same = (folders.*verb.run)();
      ResetCancellation();
      happened = AtCall::Happened();
      INFO(verb.name << " before call " << n << ": " << same.status().ToString());
      if (same.ok()) {
        REQUIRE(*same);
      } else {
        REQUIRE(same.status().kind() == ErrorKind::kInterrupted);
        ++interrupted;
      }
    }
    CHECK(interrupted > 4);
  }
}

TEST_CASE(
    "files that change while they are read end no verb but with an error or the right result") {
  const Folders folders;
  const std::vector<std::string> source = {"source/model.safetensors", "source/config.json"};
  const std::vector<Verb> verbs = {
      {"convert", &Folders::Convert, source},
      {"check", &Folders::Check, source, true},
      {"diff", &Folders::Diff, source},
      {"inspect", &Folders::Inspect, {"source/model.safetensors", "packed/prepack.json"}, true},
      {"verify",
       &Folders::Verify,
       {"source/model.safetensors", "packed/model.safetensors", "packed/prepack.json",
        "packed/config.json"},
       true}};
  for (const Verb& verb : verbs) {
    for (const std::string& file : verb.files) {
      const std::string whole = Value(ReadTextFile(folders / file, 1 << 20));
      for (const Change& change : kChanges) {
        INFO(verb.name << ", " << file << " " << change.name);
        size_t calls = 0;
        while (RunWith(folders, verb, change, folders / file, calls)) {
          std::ofstream(folders / file, std::ios::binary | std::ios::trunc) << whole;
          ++calls;
        }
        CHECK(calls >= 4);
      }
    }
  }
}

}  // namespace
}  // namespace prepack::testing
