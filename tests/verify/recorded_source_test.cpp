// A packed folder finds its source where it lay.

#include <filesystem>
#include <fstream>
#include <string>

#include "prepack/io/output_folder.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/in_parts.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

namespace fs = std::filesystem;

VerifyReport VerifyAlone(const fs::path& folder) {
  VerifyOptions options;
  options.folder = folder;
  options.engine = EngineChoice::kReference;
  Progress progress;
  return Value(VerifyAlsoInParts(options, progress));
}

// source and packed in a folder that they share.
void MakeBoth(const fs::path& folder) {
  fs::create_directories(folder);
  fs::copy(Fixture("checkpoints/ct-w4a16-g128-sym"), folder / "source");
  Pack(folder / "source", {.target = "vllm-cpu"}, folder / "packed");
}

std::string ManifestOf(const fs::path& folder) {
  return Value(ReadTextFile(folder / kManifestName, kMaxManifestBytes));
}

TEST_CASE("verify finds the source where it lay, also after both have moved") {
  TempFolder temp;
  MakeBoth(temp / "here");
  CHECK(Value(ReadManifest(temp / "here/packed")).source_path == "../source");
  const VerifyReport here = VerifyAlone(temp / "here/packed");
  CHECK(here.source_found);
  CHECK(here.source == fs::canonical(temp / "here/source"));
  CHECK(here.Verdict() == LevelState::kPassed);

  fs::create_directories(temp / "far");
  fs::rename(temp / "here", temp / "far/away");
  const VerifyReport moved = VerifyAlone(temp / "far/away/packed");
  CHECK(moved.source == fs::canonical(temp / "far/away/source"));
  CHECK(moved.Verdict() == LevelState::kPassed);
}

TEST_CASE("a source that is named is taken, wherever the other one lies") {
  TempFolder temp;
  MakeBoth(temp / "here");
  VerifyOptions options;
  options.folder = temp / "here/packed";
  options.source = Fixture("checkpoints/ct-w4a16-g128-sym");
  options.engine = EngineChoice::kReference;
  Progress progress;
  const VerifyReport report = Value(VerifyAlsoInParts(options, progress));
  CHECK_FALSE(report.source_found);
  CHECK(report.source == options.source->string());
  CHECK(report.Verdict() == LevelState::kPassed);
}

TEST_CASE("without a source the levels that need it do not run") {
  TempFolder temp;
  MakeBoth(temp / "here");
  const auto check = [&] {
    const VerifyReport report = VerifyAlone(temp / "here/packed");
    CHECK_FALSE(report.source_found);
    CHECK(report.source.empty());
    CHECK(report.level(Level::kIntegrity).state == LevelState::kPassed);
    CHECK(report.level(Level::kExactness).state == LevelState::kNotRun);
    CHECK(report.level(Level::kGemm).state == LevelState::kNotRun);
    CHECK(report.Verdict() == LevelState::kNotRun);
  };
  fs::remove(temp / "here/source/config.json");  // no checkpoint any more
  check();
  fs::remove_all(temp / "here/source");
  check();
}

TEST_CASE("a source that has changed since is noticed by its fingerprint") {
  TempFolder temp;
  MakeBoth(temp / "here");
  const fs::path weights = temp / "here/source/model.safetensors";
  std::fstream file(weights, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(-1, std::ios::end);
  const auto last = static_cast<char>(file.get() ^ 1);
  file.seekp(-1, std::ios::end);
  file.put(last);
  file.close();
  const VerifyReport report = VerifyAlone(temp / "here/packed");
  CHECK(report.source_found);
  CHECK(report.level(Level::kExactness).state == LevelState::kFailed);
  bool named = false;
  for (const Problem& problem : report.level(Level::kExactness).problems) {
    named = named || problem.message.find("(fingerprint found ") != std::string::npos;
  }
  CHECK(named);
}

TEST_CASE("what lies there now need not be a checkpoint that can be read") {
  TempFolder temp;
  MakeBoth(temp / "here");
  std::ofstream(temp / "here/source/config.json") << "{";
  const VerifyReport report = VerifyAlone(temp / "here/packed");
  CHECK(report.source_found);
  CHECK(report.Verdict() == LevelState::kNotRun);
  CHECK(report.level(Level::kExactness)
            .reason.starts_with("the source was found where the manifest says, but cannot be "));
  CHECK(report.level(Level::kGemm).reason == report.level(Level::kExactness).reason);
}

TEST_CASE("the manifest is the same wherever source and output lie, if they lie there together") {
  TempFolder temp;
  MakeBoth(temp / "a");
  MakeBoth(temp / "b/c");
  CHECK(ManifestOf(temp / "a/packed") == ManifestOf(temp / "b/c/packed"));
}

}  // namespace
}  // namespace prepack::testing
