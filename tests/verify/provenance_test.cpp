// Manifests that lie, with config.json and all hashes to match, and files that do not belong.

#include "prepack/verify/exactness.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "formats/tiny_model.h"
#include "prepack/base/hash.h"
#include "prepack/packed/output_config.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/in_parts.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

void Overwrite(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Changes what the manifest says, and makes config.json and all hashes agree.
void Rewrite(const std::filesystem::path& folder, const std::filesystem::path& source,
             const std::function<void(Manifest&)>& edit) {
  Manifest manifest = Value(ReadManifest(folder));
  edit(manifest);
  const Checkpoint checkpoint = Value(Checkpoint::Open(source));
  const std::string config = OutputConfigText(checkpoint.config_text(), manifest,
                                              OwnRecords(manifest), PackedSchemes(manifest));
  Overwrite(folder / "config.json", config);
  manifest.files["config.json"] = {.bytes = config.size(), .xxh3_128 = Xxh3Hex(config)};
  Overwrite(folder / "prepack.json", ManifestText(manifest));
}

VerifyReport WithoutGemm(const std::filesystem::path& folder, const std::filesystem::path& source) {
  VerifyOptions options;
  options.folder = folder;
  options.source = source;
  options.skip = {Level::kGemm};
  Progress progress;
  return Value(VerifyAlsoInParts(options, progress));
}

bool Says(const LevelResult& level, const std::string& text) {
  for (const Problem& problem : level.problems) {
    if ((problem.where + ": " + problem.message).find(text) != std::string::npos) return true;
  }
  return false;
}

struct Lie {
  const char* checkpoint = "";
  PackedExample packed;
  std::function<void(Manifest&)> edit;
  const char* message = "";
};

TEST_CASE("a manifest that lies about the model fails exactness, however well its hashes fit") {
  const std::vector<Lie> lies = {
      {"ct-w4a16-g128-sym",
       {"vllm-cpu"},
       [](Manifest& m) { m.kept[kDownProj] = "too large"; },
       "down_proj: the module is packed, but the manifest says that it was kept"},
      {"ct-w4a16-g128-sym",
       {"vllm-cpu"},
       [](Manifest& m) { m.kept["lm_head"] = "too large"; },
       "module lm_head: the manifest says that the module was kept, but the source has no such "
       "quantized module"},
      {"ct-w4a16-g128-sym",
       {"vllm-cpu"},
       [](Manifest& m) {
         m.source_quantization_config = {{"quant_method", "awq"}};
       },
       "prepack.json: has another quantization config than the source"},
      {"ct-w4a16-g128-sym",
       {"vllm-cpu"},
       [](Manifest& m) { m.modules.erase(kDownProj); },
       "down_proj: the module is not packed, and the manifest does not say that it was kept"},
      {"ct-w4a16-g128-sym",
       {"vllm-cpu"},
       [](Manifest& m) { m.dequantized[kDownProj] = "none"; },
       "down_proj: the manifest is wrong about whether the module was dequantized"},
      {"ct-w8a8-asym-act",
       {"vllm-cpu"},
       [](Manifest& m) {
         ModuleRecord& record = m.modules.at(kDownProj);
         record.scheme.activations.symmetric = true;
         record.parts.erase("azp_adj");
       },
       "down_proj: the source has another shape or scheme than the manifest"},
  };
  for (const Lie& lie : lies) {
    CAPTURE(lie.message);
    const TempFolder temp;
    const std::filesystem::path source = Fixture(std::string("checkpoints/") + lie.checkpoint);
    Pack(source, lie.packed, temp / "out");
    CHECK(WithoutGemm(temp / "out", source).level(Level::kExactness).state == LevelState::kPassed);
    Rewrite(temp / "out", source, lie.edit);
    const VerifyReport report = WithoutGemm(temp / "out", source);
    CHECK(report.level(Level::kExactness).state == LevelState::kFailed);
    CHECK(Says(report.level(Level::kExactness), lie.message));
  }
}

TEST_CASE("a bias that lies beside its packed module fails exactness, in every kind of layout") {
  const char* target = GENERATE("vllm-cpu", "zentorch", "onednn");
  CAPTURE(target);
  const TempFolder temp;
  TestCheckpoint model = TinyModel({"a", "b"});
  // So small that no product shows it.
  std::vector<std::byte> bias;
  for (int n = 0; n < 32; ++n) bias.insert(bias.end(), {std::byte{0x80}, std::byte{0x00}});
  model.tensors.push_back({"a.bias", "BF16", {32}, bias});
  model.Write(temp / "source");
  Pack(temp / "source", {.target = target}, temp / "out");
  CHECK(WithoutGemm(temp / "out", temp / "source").level(Level::kExactness).state ==
        LevelState::kPassed);
  Rewrite(temp / "out", temp / "source", [](Manifest& manifest) {
    manifest.tensors.push_back(manifest.modules.at("a").parts.extract("bias").mapped());
    std::ranges::sort(manifest.tensors, {}, &TensorRecord::tensor);
  });
  const VerifyReport report = WithoutGemm(temp / "out", temp / "source");
  CHECK(report.level(Level::kIntegrity).state == LevelState::kPassed);
  const LevelResult& level = report.level(Level::kExactness);
  CHECK(Says(level,
             "module a: the source has a bias for this module, but the module has no such part"));
  CHECK(Says(level, "tensor a.bias: it lies beside the packed module that it belongs to"));
}

TEST_CASE("a side file that the source has otherwise fails exactness") {
  const TempFolder temp;
  std::filesystem::copy(Fixture("checkpoints/ct-w4a16-g128-sym"), temp / "source");
  Pack(temp / "source", {.target = "vllm-cpu"}, temp / "out");
  Overwrite(temp / "source" / "tokenizer.json", "{}");
  const VerifyReport report = WithoutGemm(temp / "out", temp / "source");
  CHECK(report.level(Level::kIntegrity).state == LevelState::kPassed);
  CHECK(
      Says(report.level(Level::kExactness), "tokenizer.json: differs from the file in the source"));
}

TEST_CASE("a file that the source does not have fails exactness, also when the manifest lists it") {
  const TempFolder temp;
  const std::filesystem::path source = Fixture("checkpoints/ct-w4a16-g128-sym");
  Pack(source, {.target = "vllm-cpu"}, temp / "out");
  const std::string code = "print('hello')";
  Overwrite(temp / "out" / "modeling_new.py", code);
  Rewrite(temp / "out", source, [&](Manifest& manifest) {
    manifest.files["modeling_new.py"] = {.bytes = code.size(), .xxh3_128 = Xxh3Hex(code)};
  });
  const VerifyReport report = WithoutGemm(temp / "out", source);
  CHECK(report.level(Level::kIntegrity).state == LevelState::kPassed);
  CHECK(Says(report.level(Level::kExactness), "modeling_new.py: the source has no such file"));
}

TEST_CASE(
    "files that the manifest does not know fail integrity, but for a README and hidden ones") {
  const std::filesystem::path source = Fixture("checkpoints/ct-w4a16-g128-sym");
  const TempFolder temp;
  Pack(source, {.target = "vllm-cpu"}, temp / "out");
  Overwrite(temp / "out" / "README.md", "about");
  Overwrite(temp / "out" / ".gitattributes", "about");
  CHECK(WithoutGemm(temp / "out", source).level(Level::kIntegrity).state == LevelState::kPassed);
  for (const std::string name :
       {"chat_template.jinja", "pytorch_model.bin", "model.safetensors.index.json", "X.SAFETENSORS",
        ".hidden.safetensors"}) {
    CAPTURE(name);
    Overwrite(temp / "out" / name, "{}");
    const VerifyReport report = WithoutGemm(temp / "out", source);
    CHECK(Says(report.level(Level::kIntegrity), name + ": the manifest does not list this file"));
    std::filesystem::remove(temp / "out" / name);
  }
}

TEST_CASE("a file that the source got later is named as missing") {
  const TempFolder temp;
  std::filesystem::copy(Fixture("checkpoints/ct-w4a16-g128-sym"), temp / "source");
  Pack(temp / "source", {.target = "vllm-cpu"}, temp / "out");
  Overwrite(temp / "source" / "chat_template.jinja", "x");
  CHECK(Says(WithoutGemm(temp / "out", temp / "source").level(Level::kExactness),
             "chat_template.jinja: the source has this file, but the packed folder does not"));
}

}  // namespace
}  // namespace prepack::testing
