// The journal of an interrupted conversion is damaged, or lies: --resume ends with an error, or
// with the bytes of an undisturbed run.

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "catch.h"
#include "formats/tiny_model.h"
#include "io_fault.h"
#include "prepack/convert/convert.h"
#include "prepack/convert/resume.h"
#include "prepack/io/file.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

namespace fs = std::filesystem;

// A conversion that failed at its very end, which can be gone on with any number of times.
class InterruptedRun {
 public:
  InterruptedRun() {
    TinyModel({"a", "b"}).Write(temp_ / "source");
    RequireOk(Convert("undisturbed").status());
    {
      const IoFault fault(posix::Call::kRename, EIO);
      CheckError(Convert("out").status(), ErrorKind::kSystem, "");
    }
    REQUIRE_FALSE(fs::exists(temp_ / "out"));
    fs::copy(partial(), temp_ / "kept");
    journal_ = Value(ReadTextFile(journal_path(), 1 << 20));
  }

  const std::string& journal() const { return journal_; }
  // What the lines say, without their hashes.
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    for (size_t at = 0, end = 0; at < journal_.size(); at = end + 1) {
      end = journal_.find('\n', at);
      lines.push_back(journal_.substr(at, journal_.rfind(' ', end) - at));
    }
    return lines;
  }

  // With the whole journal, and a file that nobody knows in the unfinished output.
  Status ConvertAgain() {
    Restore(journal_);
    std::ofstream(partial() / "stray") << "x";
    return Convert("out").status();
  }

  // With this journal. When it succeeds, the output is that of the undisturbed run.
  Result<ConvertReport> Resume(const std::string& journal) {
    Restore(journal);
    Result<ConvertReport> report = Convert("out");
    if (!report.ok()) return report;
    REQUIRE(ContentsOf("out") == ContentsOf("undisturbed"));
    fs::remove_all(temp_ / "out");
    return report;
  }

 private:
  fs::path partial() const { return temp_ / ".out.prepack-partial"; }
  fs::path journal_path() const { return temp_ / ".out.prepack-journal"; }

  void Restore(const std::string& journal) const {
    fs::remove_all(temp_ / "out");
    if (!fs::exists(partial())) fs::copy(temp_ / "kept", partial());
    std::ofstream(journal_path(), std::ios::trunc) << journal;
  }

  std::map<std::string, std::string> ContentsOf(const std::string& name) const {
    std::map<std::string, std::string> contents;
    for (const auto& entry : fs::directory_iterator(temp_ / name)) {
      contents[entry.path().filename()] = Value(ReadTextFile(entry.path(), 1 << 20));
    }
    return contents;
  }

  Result<ConvertReport> Convert(const std::string& name) const {
    ConvertOptions options;
    options.source = temp_ / "source";
    options.output = temp_ / name;
    options.plan.target = "vllm-cpu";
    options.jobs = 1;
    options.flush = false;
    options.resume = true;
    Progress progress;
    return prepack::Convert(options, progress);
  }

  TempFolder temp_;
  std::string journal_;
};

TEST_CASE("a conversion goes on behind a journal that was cut") {
  InterruptedRun run;
  CHECK(Value(run.Resume(run.journal())).resumed_units == 3);
  for (size_t length = 0; length < run.journal().size(); length += 7) {
    INFO(length);
    const std::string left = run.journal().substr(0, length);
    const auto lines = static_cast<size_t>(std::ranges::count(left, '\n'));
    REQUIRE(Value(run.Resume(left)).resumed_units == (lines == 0 ? 0 : lines - 1));
  }
}

TEST_CASE("a conversion does not go on behind a journal that rotted") {
  InterruptedRun run;
  const size_t last = run.journal().size() - 1;
  for (size_t at = 0; at < last; ++at) {
    INFO(at);
    std::string damaged = run.journal();
    damaged[at] = static_cast<char>(damaged[at] ^ 1 << at % 8);
    const Status status = run.Resume(damaged).status();
    CheckError(status, ErrorKind::kMalformed, "the line is not what was written: its hash differs");
    REQUIRE(status.hint() == "Run without --resume to start from the beginning");
  }
  CHECK(Value(run.Resume(run.journal())).resumed_units == 3);  // refusing has destroyed nothing
}

TEST_CASE("whichever call fails when a conversion goes on, the next run goes on") {
  InterruptedRun run;
  std::set<std::string> said;
  bool happened = true;
  for (size_t n = 0; happened; ++n) {
    Status status;
    {
      const AtCall fault(n, [] { return EACCES; });
      status = run.ConvertAgain();
      happened = AtCall::Happened();
    }
    INFO(n << ": " << status.ToString());
    if (!status.ok()) {
      REQUIRE(status.kind() == ErrorKind::kSystem);
      said.insert(status.what().substr(0, status.what().find(':')));
    }
    RequireOk(run.Resume(run.journal()).status());
  }
  for (const char* what :
       {"cannot change its size", "cannot remove what an interrupted run left behind"}) {
    INFO(what);
    CHECK(said.contains(what));
  }
}

TEST_CASE("a journal that lies is found out by the bytes of the shards") {
  InterruptedRun run;
  const std::vector<std::string> lines = run.lines();
  REQUIRE(lines.size() == 4);
  const std::vector<std::function<void(Json&)>> lies = {
      [](Json& unit) { unit["unit"] = 1'000'000'000'000; },
      [](Json& unit) { unit["unit"] = 2 - unit["unit"].get<int>(); },
      [](Json& unit) { unit["outputs"].erase(0); },
      [](Json& unit) { unit["outputs"].push_back(unit["outputs"][0]); },
      [](Json& unit) { unit["outputs"][0] = std::string(32, '0'); },
      [](Json& unit) {
        unit["tensors"].erase(0);
        unit["sources"].erase(0);
      },
      [](Json& unit) { unit["tensors"][0] = 1'000'000'000'000; },
      [](Json& unit) { unit["tensors"][0] = unit["tensors"][0] == 0 ? 8 : 0; },  // another's
  };
  for (size_t lie = 0; lie < lies.size(); ++lie) {
    INFO("lie " << lie);
    Json unit = Json::parse(lines[1]);
    lies[lie](unit);
    const std::string journal = JournalLine(lines[0]) + JournalLine(unit.dump()) +
                                JournalLine(lines[2]) + JournalLine(lines[3]);
    CHECK(Value(run.Resume(journal)).resumed_units >= 2);
  }
}

TEST_CASE("what the journal noted of the source must be what the source is now") {
  InterruptedRun run;
  const std::vector<std::string> lines = run.lines();
  Json unit = Json::parse(lines[1]);
  unit["sources"][0] = std::string(32, '0');
  const auto with = [&](const Json& second) {
    return run.Resume(JournalLine(lines[0]) + JournalLine(second.dump())).status();
  };
  CheckError(with(unit), ErrorKind::kUsage,
             "it comes from another source, or a source that has changed");
  unit["sources"].push_back(unit["sources"][0]);
  CheckError(with(unit), ErrorKind::kMalformed, "differ in length");
  RequireOk(with(Json::parse(lines[1])));
}

}  // namespace
}  // namespace prepack::testing
