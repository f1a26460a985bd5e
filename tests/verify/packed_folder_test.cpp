// Packed folders whose manifest does not fit the layouts, and what verify makes of them.

#include "prepack/packed/folder.h"

#include <functional>

#include "prepack/convert/convert.h"
#include "prepack/layouts/table.h"
#include "prepack/verify/verify.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/folder_damage.h"
#include "verify/in_parts.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

TEST_CASE("modules whose record does not fit their layout are refused") {
  TempFolder temp;
  Pack(Fixture("checkpoints/ct-w4a16-g32-asym"), {.target = "vllm-cpu"}, temp / "out");
  const PackedFolder folder = Value(PackedFolder::Open(temp / "out"));
  struct Case {
    ErrorKind kind;
    const char* text;
    std::function<void(ModuleRecord&)> edit;
  };
  const std::vector<Case> cases = {
      {ErrorKind::kMalformed, "does not take this module: N = 380",
       [](ModuleRecord& m) { m.n = 380; }},
      {ErrorKind::kMalformed,
       "part weight is not what vllm-cpu/wna16 makes (found I32 [24, 3072], "
       "expected I32 [26, 3072])",
       [](ModuleRecord& m) { m.n = 416; }},
      {ErrorKind::kMalformed, "its number of parts is not that of vllm-cpu/wna16",
       [](ModuleRecord& m) { m.scheme.symmetric = true; }},
      {ErrorKind::kMalformed, "part weight_scale is missing",
       [](ModuleRecord& m) {
         auto part = m.parts.extract("weight_scale");
         part.key() = "other";
         m.parts.insert(std::move(part));
       }},
      {ErrorKind::kMalformed, "part weight_scale is not what",
       [](ModuleRecord& m) { m.parts.at("weight_scale").dtype = DType::kF16; }},
      {ErrorKind::kMalformed, "part weight_scale is not what",
       [](ModuleRecord& m) { m.scheme.group_size = 64; }},
      {ErrorKind::kMalformed,
       "part weight has the name of another tensor (found model.layers.0.mlp.up_proj.weight",
       [](ModuleRecord& m) { m.parts.at("weight").tensor = "model.layers.0.mlp.up_proj.weight"; }},
      {ErrorKind::kUnsupported, "does not know the layout (found vllm-cpu/next)",
       [](ModuleRecord& m) { m.layout = "vllm-cpu/next"; }},
  };
  for (const Case& c : cases) {
    ModuleRecord record = folder.manifest().modules.at(kDownProj);
    c.edit(record);
    CheckError(PackedModule::Open(folder, kDownProj, record).status(), c.kind, c.text);
  }
}

TEST_CASE("reads stay inside a part") {
  TempFolder temp;
  Pack(Fixture("checkpoints/ct-w4a16-g32-asym"), {.target = "vllm-cpu"}, temp / "out");
  const PackedFolder folder = Value(PackedFolder::Open(temp / "out"));
  const TensorRecord& part = folder.manifest().modules.at(kDownProj).parts.at("weight");
  std::vector<std::byte> buffer(16);
  RequireOk(folder.Read(part, part.bytes() - 16, buffer));
  CheckError(folder.Read(part, part.bytes() - 15, buffer), ErrorKind::kMalformed, "fewer bytes");
  CheckError(folder.Read(part, UINT64_MAX - 3, buffer), ErrorKind::kMalformed, "fewer bytes");
  std::filesystem::remove(temp / "out" / part.file);
  const PackedFolder without = Value(PackedFolder::Open(temp / "out"));
  CheckError(without.Read(part, 0, buffer), ErrorKind::kMalformed, "the file is missing");
  CheckError(without.Pin(part).status(), ErrorKind::kMalformed, "the file is missing");
}

// Verifies a folder whose manifest was edited and hashed again.
VerifyReport VerifyEdited(const std::function<void(Manifest&)>& edit) {
  TempFolder temp;
  Pack(Fixture("checkpoints/ct-w4a16-g32-asym"), {.target = "vllm-cpu"}, temp / "out");
  EditManifest(temp / "out", edit);
  VerifyOptions options;
  options.folder = temp / "out";
  options.source = Fixture("checkpoints/ct-w4a16-g32-asym");
  options.engine = EngineChoice::kReference;
  Progress progress;
  return Value(VerifyAlsoInParts(options, progress));
}

TEST_CASE("a manifest that is consistent but not true does not pass") {
  CHECK(VerifyEdited([](Manifest&) {}).Verdict() == LevelState::kPassed);
  const std::vector<std::function<void(Manifest&)>> lies = {
      [](Manifest& m) { m.source_fingerprint = std::string(32, '0'); },
      [](Manifest& m) { m.modules.at(kDownProj).source_xxh3_128 = std::string(32, '0'); },
      [](Manifest& m) { m.modules.at(kDownProj).scale_rounding = "F32 to BF16, nearest even"; },
      [](Manifest& m) {
        m.modules.at(kDownProj).parts.at("weight").xxh3_128 = std::string(32, '0');
      },
      [](Manifest& m) { m.files.erase("config.json"); },
      [](Manifest& m) { m.target = "zentorch"; },
      [](Manifest& m) { m.kept["nonsense"] = "why"; },
  };
  for (size_t i = 0; i < lies.size(); ++i) {
    INFO("lie " << i);
    CHECK(VerifyEdited(lies[i]).Verdict() == LevelState::kFailed);
  }
}

TEST_CASE("a manifest of another layout version is noticed, and nothing is said to have passed") {
  const VerifyReport report =
      VerifyEdited([](Manifest& m) { m.layouts.at("vllm-cpu/wna16").version = 2; });
  CHECK(report.Verdict() == LevelState::kFailed);
  CHECK(report.level(Level::kIntegrity).state == LevelState::kFailed);
  CHECK(report.level(Level::kExactness).state == LevelState::kNotRun);
  CHECK(report.level(Level::kGemm).state == LevelState::kNotRun);
}

}  // namespace
}  // namespace prepack::testing
