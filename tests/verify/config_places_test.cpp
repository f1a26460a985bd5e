// Every real checkpoint with its quantization config in each of the places where writers put it:
// what is packed of it is the same to the byte, and verify finds the config by code of its own.

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "prepack/container/json.h"
#include "prepack/io/file.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

namespace fs = std::filesystem;

const std::set<std::string> kOwnFiles = {"quantize_config.json", "quant_config.json",
                                         "quantization_config.json"};

// The files of a checkpoint, of which the configs are written anew.
struct Form {
  std::string name;
  Json config;
  std::string own_file = {};  // empty: none
  Json own = {};
};

std::vector<Form> FormsOf(Json config) {
  const Json quantization = config.at("quantization_config");
  config.erase("quantization_config");
  const auto with = [&](const std::string& key, const Json& value) {
    Json all = config;
    all[key] = value;
    return all;
  };
  const Json declared = {{"quantization_config", quantization}};
  std::vector<Form> forms = {{"top level", with("quantization_config", quantization)},
                             {"compression_config", with("compression_config", quantization)},
                             {"llm_config", with("llm_config", declared)},
                             {"wrapped", with("quantization_config", declared)}};
  // Models that hold a language model have all of its config in there.
  Json nested = config;
  nested["quantization_config"] = quantization;
  const Json outer = {{"architectures", config.at("architectures")}, {"text_config", nested}};
  forms.push_back({"text_config", outer});
  forms.push_back({"thinker_config", {{"model_type", "omni"}, {"thinker_config", outer}}});
  for (const std::string& file : kOwnFiles) forms.push_back({file, config, file, quantization});
  return forms;
}

// What AutoGPTQ wrote, for checkpoints that are stored as its were.
std::vector<Form> FormsOfAutoGptq(Json config) {
  const Json quantization = config.at("quantization_config");
  if (quantization.value("checkpoint_format", "") != "gptq") return {};
  if (quantization.contains("dynamic") && !quantization["dynamic"].is_null()) return {};
  config.erase("quantization_config");
  Json own = {{"bits", quantization.at("bits")},
              {"group_size", quantization.at("group_size")},
              {"damp_percent", 0.01},
              {"desc_act", quantization.at("desc_act")},
              {"static_groups", false},
              {"sym", quantization.at("sym")},
              {"true_sequential", true},
              {"model_name_or_path", nullptr},
              {"model_file_base_name", nullptr}};
  if (quantization.contains("meta")) own["meta"] = quantization["meta"];
  return {{"as AutoGPTQ wrote it", config, "quantize_config.json", own}};
}

void Write(const Form& form, const fs::path& original, const fs::path& folder) {
  fs::remove_all(folder);
  fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(original)) {
    const std::string name = entry.path().filename().string();
    if (name == "config.json" || kOwnFiles.contains(name)) continue;
    fs::copy_file(entry.path(), folder / name);
  }
  std::ofstream(folder / "config.json") << form.config.dump(2);
  if (!form.own_file.empty()) std::ofstream(folder / form.own_file) << form.own.dump(2);
}

// Hashes of all modules' parts and of the tensors that pass through, by name.
std::map<std::string, std::string> HashesOf(const fs::path& output) {
  const Manifest manifest = Value(ReadManifest(output));
  std::map<std::string, std::string> hashes;
  for (const auto& [name, module] : manifest.modules) {
    for (const auto& [part, tensor] : module.parts) hashes[tensor.tensor] = tensor.xxh3_128;
  }
  for (const TensorRecord& tensor : manifest.tensors) hashes[tensor.tensor] = tensor.xxh3_128;
  return hashes;
}

// All modules, or some of every kind: the bytes of all are compared otherwise.
VerifyReport VerifyByModels(const fs::path& output, const fs::path& source, bool all) {
  VerifyOptions options;
  options.folder = output;
  options.source = source;
  options.engine = EngineChoice::kReference;
  if (!all) options.sample = SampleChoice{.fraction = 0.01};
  Progress progress;
  return Value(Verify(options, progress));
}

// Converts the form and verifies the result; hashes of what was packed.
std::map<std::string, std::string> CheckForm(const Form& form, const fs::path& original,
                                             const TempFolder& temp, bool all) {
  CAPTURE(form.name);
  const fs::path source = temp / "source";
  const fs::path output = temp / "out";
  Write(form, original, source);
  fs::remove_all(output);
  Pack(source, {.target = "vllm-cpu"}, output);
  const VerifyReport report = VerifyByModels(output, source, all);
  for (const Level level : {Level::kIntegrity, Level::kExactness, Level::kGemm}) {
    CAPTURE(LevelName(level), report.level(level).reason);
    for (const Problem& problem : report.level(level).problems) {
      UNSCOPED_INFO(problem.where << ": " << problem.message);
    }
    CHECK(report.level(level).state == LevelState::kPassed);
  }
  // Where the source's config stood, none is left for a loader to find.
  const Json config =
      Value(ParseJsonStrict(Value(ReadTextFile(output / "config.json", 1 << 20)), ""));
  CHECK(config.at("quantization_config").at("quant_method") == "prepack");
  Json others = config;
  others.erase("quantization_config");
  CHECK(others.dump().find("quantization_config") == std::string::npos);
  CHECK(others.dump().find("compression_config") == std::string::npos);
  return HashesOf(output);
}

TEST_CASE("every place of the quantization config gives the same packed bytes, and verify passes") {
  size_t forms = 0;
  for (const auto& entry : fs::directory_iterator(Fixture("checkpoints"))) {
    CAPTURE(entry.path().filename().string());
    const Json config =
        Value(ParseJsonStrict(Value(ReadTextFile(entry.path() / "config.json", 1 << 20)), ""));
    if (!config.contains("quantization_config")) continue;  // one that is stored in such a form
    const TempFolder temp;
    std::vector<Form> all = FormsOf(config);
    for (Form& form : FormsOfAutoGptq(config)) all.push_back(std::move(form));
    const std::map<std::string, std::string> expected =
        CheckForm(all.front(), entry.path(), temp, true);
    REQUIRE_FALSE(expected.empty());
    for (size_t i = 1; i < all.size(); ++i) {
      CAPTURE(all[i].name);
      CHECK(CheckForm(all[i], entry.path(), temp, false) == expected);
    }
    forms += all.size();
  }
  CHECK(forms >= 35 * 9 + 3);
}

}  // namespace
}  // namespace prepack::testing
