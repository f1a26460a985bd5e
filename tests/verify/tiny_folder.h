#pragma once

// A tiny packed folder whose descriptions are damaged: whoever reads it ends with a result or an
// error of the documented kinds, and verify never says "passed" of what is not what was written.

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "formats/tiny_model.h"
#include "prepack/base/hash.h"
#include "prepack/convert/convert.h"
#include "prepack/diff/diff.h"
#include "prepack/inspect/inspect.h"
#include "prepack/inspect/opened_folder.h"
#include "prepack/io/file.h"
#include "prepack/io/output_folder.h"
#include "prepack/packed/manifest.h"
#include "prepack/verify/verify.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/in_parts.h"

namespace prepack::testing {

// A source and what was packed of it, which is damaged and mended again and again.
class TinyFolder {
 public:
  TinyFolder() : TinyFolder(TinyModel({"a"}), {.target = "vllm-cpu"}) {}
  TinyFolder(const TestCheckpoint& model, PlanOptions plan) : plan_(std::move(plan)) {
    model.Write(source());
    RequireOk(Resume().status());
  }

  std::filesystem::path source() const { return temp_ / "source"; }
  std::filesystem::path path() const { return temp_ / "out"; }
  std::string Text(const std::string& name) const {
    return Value(ReadTextFile(path() / name, 1 << 20));
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(path() / name, std::ios::binary | std::ios::trunc) << text;
  }

  Result<VerifyReport> Verify(std::vector<Level> skip) const {
    VerifyOptions options;
    options.folder = path();
    options.source = source();
    options.engine = EngineChoice::kReference;
    options.skip = std::move(skip);
    options.jobs = 1;
    Progress progress;
    // In parts, too, for some: the damages are thousands, and neighbours are alike.
    constexpr size_t kEach = 61;
    if (calls_++ % kEach != 0) return prepack::Verify(options, progress);
    return VerifyAlsoInParts(options, progress, {2});
  }
  Status Inspect() const {
    if (Status status = prepack::Inspect(path()).status(); !status.ok()) return status;
    const Result<OpenedFolder> opened = OpenedFolder::Open(path());
    return opened.ok() ? FindPackedModule(*opened, "a").status() : opened.status();
  }
  Status Diff() const {
    Progress progress;
    return prepack::Diff({.a = path(), .b = source(), .module = {}, .jobs = 1}, progress).status();
  }
  Result<ConvertReport> Resume() const {
    ConvertOptions options;
    options.source = source();
    options.output = path();
    options.plan = plan_;
    options.shard_bytes = 64;
    options.jobs = 1;
    options.flush = false;
    options.resume = true;
    Progress progress;
    return Convert(options, progress);
  }

 private:
  TempFolder temp_;
  PlanOptions plan_;
  mutable size_t calls_ = 0;  // of Verify
};

// Success, or a message of a kind that a damaged folder may have.
inline void CheckEnd(const Status& status) {
  if (status.ok()) return;
  static const std::set<ErrorKind> kKinds = {ErrorKind::kUsage, ErrorKind::kMalformed,
                                             ErrorKind::kUnsupported};
  INFO(status.ToString());
  REQUIRE(kKinds.contains(status.kind()));
  REQUIRE_FALSE(status.what().empty());
}

// Is every level that ran content?
inline bool Passes(const TinyFolder& folder, const std::vector<Level>& skip) {
  const Result<VerifyReport> report = folder.Verify(skip);
  CheckEnd(report.status());
  if (!report.ok()) return false;
  if (report->level(Level::kIntegrity).state == LevelState::kFailed) {
    REQUIRE_FALSE(report->level(Level::kIntegrity).problems.empty());
  }
  for (const Level level : {Level::kIntegrity, Level::kExactness, Level::kGemm}) {
    const bool skipped = std::ranges::count(skip, level) != 0;
    if (!skipped && report->level(level).state != LevelState::kPassed) return false;
  }
  return true;
}

// The first levels find most, in less time.
inline bool Passes(const TinyFolder& folder) {
  return Passes(folder, {Level::kGemm}) && Passes(folder, {});
}

inline void ReadByOthers(const TinyFolder& folder) {
  CheckEnd(folder.Inspect());
  CheckEnd(folder.Diff());
  CheckEnd(folder.Resume().status());
}

// "replace /a/b": the first value in which two documents differ.
inline std::string FirstDifference(const std::string& a, const std::string& b) {
  const Json patch = Json::diff(Json::parse(a), Json::parse(b));
  if (patch.empty()) return "nothing";
  return fmt::format("{} {}", patch[0]["op"].get<std::string>(),
                     patch[0]["path"].get<std::string>());
}

// The manifest with a hash that fits.
inline std::string Hashed(const std::string& text) {
  return fmt::format("{}{}{}\"\n}}\n", text, kManifestHashPrefix, Xxh3Hex(text));
}

inline std::string WithoutHash(const std::string& manifest) {
  return manifest.substr(0, manifest.rfind(kManifestHashPrefix));
}

}  // namespace prepack::testing
