#pragma once

// Tables of defects: each is made from a good checkpoint that reads, and lists the error that the
// user sees.

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "formats/checkpoint_builder.h"
#include "formats/read_helpers.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {

// Opens the checkpoint and reads all of its numbers; the first error.
inline Status ReadEverything(const std::filesystem::path& folder) {
  const Result<OpenedModel> opened = OpenModel(folder);
  if (!opened.ok()) return opened.status();
  for (const auto& module : opened->model.modules) {
    const PanelRange all{0, module->n(), 0, module->k()};
    std::vector<std::byte> codes(PanelBytes(module->scheme().code, all));
    Status status = module->ReadCodes(all, codes);
    if (!status.ok()) return status;
    std::vector<float> scales(module->n() * module->groups());
    status = module->ReadScales(0, module->n(), scales);
    if (!status.ok()) return status;
    std::vector<uint8_t> zero_points(scales.size());
    status = module->ReadZeroPoints(0, module->n(), zero_points);
    if (!status.ok()) return status;
  }
  return {};
}

inline Status ReadEverything(const TestCheckpoint& stored) {
  const TempFolder folder;
  stored.Write(folder.path());
  return ReadEverything(folder.path());
}

inline constexpr ErrorKind kMalformed = ErrorKind::kMalformed;
inline constexpr ErrorKind kUnsupported = ErrorKind::kUnsupported;

inline void AddZeros(TestCheckpoint& stored, const std::string& name, const std::string& dtype,
                     const std::vector<uint64_t>& shape, size_t bytes) {
  stored.tensors.push_back({name, dtype, shape, std::vector<std::byte>(bytes)});
}

struct FormatDefect {
  std::string name;
  TestCheckpoint (*good)();
  void (*break_it)(TestCheckpoint& stored);
  ErrorKind kind;
  std::string id;
  std::string text;  // the decisive part of the message
};

inline void CheckDefects(const std::vector<FormatDefect>& defects) {
  for (const FormatDefect& defect : defects) {
    INFO(defect.name);
    TestCheckpoint stored = defect.good();
    RequireOk(ReadEverything(stored));
    defect.break_it(stored);
    const Status status = ReadEverything(stored);
    CheckError(status, defect.kind, defect.text);
    CHECK(status.id() == defect.id);
  }
}

// The findings of a checkpoint that reads.
inline std::vector<Finding> FindingsOf(const TestCheckpoint& stored) {
  const TempFolder folder;
  stored.Write(folder.path());
  return MustOpen(folder.path()).model.findings;
}

// True when one of them has the id and its message holds the text.
inline bool HasFinding(const std::vector<Finding>& findings, std::string_view id,
                       std::string_view text) {
  return std::ranges::any_of(findings, [&](const Finding& finding) {
    return finding.id == id && finding.message.find(text) != std::string::npos;
  });
}

}  // namespace prepack::testing
