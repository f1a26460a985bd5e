#include "prepack/formats/quantization_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/base/text.h"
#include "prepack/container/json_fields.h"
#include "prepack/container/model_config.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/foreign.h"

namespace prepack {

std::optional<VersionNumber> ParseVersionNumber(std::string_view text) {
  const char* end = text.data() + text.size();
  VersionNumber version;
  const auto [dot, error] = std::from_chars(text.data(), end, version.major);
  if (error != std::errc()) return std::nullopt;
  if (dot != end && *dot == '.') std::from_chars(dot + 1, end, version.minor);
  return version;
}

std::string ShowVersion(const VersionNumber& version) {
  return fmt::format("{}.{}", version.major, version.minor);
}

namespace {

constexpr std::array<std::string_view, 3> kCopies = {"quantize_config.json", "quant_config.json",
                                                     "quantization_config.json"};
constexpr std::string_view kModelOptFile = "hf_quant_config.json";
constexpr std::string_view kDeclaration = "quantization_config";
constexpr std::string_view kOldDeclaration = "compression_config";

// Places where a declaration may stand, each with what stands there.
class Places {
 public:
  void Add(std::string where, const Json* fields, bool beside = false) {
    if (fields != nullptr) found_.push_back({std::move(where), "", fields, beside});
  }
  void AddMember(std::string_view where, const Json& object, std::string_view key) {
    Add(fmt::format("{}: {}", where, key), JsonMember(object, key));
  }
  std::vector<QuantizationConfig> Take() { return std::move(found_); }

 private:
  std::vector<QuantizationConfig> found_;
};

// The paths of all declarations inside nested configs, the outermost first.
void FindNested(const Json& config, const ConfigPath& path, std::vector<ConfigPath>& found) {
  for (const auto& [key, value] : config.items()) {
    if (!value.is_object() || key == kDeclaration || key == kOldDeclaration) continue;
    ConfigPath inside = path;
    inside.push_back(key);
    if (JsonMember(value, kDeclaration) != nullptr) {
      found.push_back(inside);
      found.back().emplace_back(kDeclaration);
    }
    FindNested(value, inside, found);
  }
}

std::vector<QuantizationConfig> Locate(const Checkpoint& checkpoint) {
  Places places;
  const Json& config = checkpoint.config();
  for (const ConfigPath& path : DeclarationPaths(config)) {
    const Json* fields = &config;
    for (const std::string& key : path) fields = JsonMember(*fields, key);
    places.Add(fmt::format("config.json: {}", fmt::join(path, ".")), fields);
  }
  const auto& side = checkpoint.side_configs();
  if (const auto params = side.find("params.json"); params != side.end() && config.empty()) {
    places.AddMember("params.json", params->second, kDeclaration);
    places.AddMember("params.json", params->second, "quantization");
  }
  for (const std::string_view name : kCopies) {
    if (const auto copy = side.find(name); copy != side.end()) {
      places.Add(std::string(name), &copy->second, true);
    }
  }
  if (const auto copy = side.find(kModelOptFile); copy != side.end()) {
    places.Add(fmt::format("{}: quantization", kModelOptFile),
               JsonMember(copy->second, "quantization"), true);
  }
  return places.Take();
}

// The names that vLLM and transformers know one method by.
std::string CanonicalMethod(std::string_view name) {
  std::string method = LowerCase(name);
  std::ranges::replace(method, '_', '-');
  if (method == "intel/auto-round" || method == "inc") return "auto-round";
  if (method == "modelopt-fp8" || method == "modelopt-fp4" || method == "modelopt-mixed") {
    return "modelopt";
  }
  return method;
}

// The method that only one quantizer's keys can mean; empty when they do not tell.
std::string MethodOfKeys(const Json& fields) {
  const auto has = [&](std::string_view key) { return fields.contains(key); };
  if (has("quant_algo")) return "modelopt";
  if (has("config_groups")) return "compressed-tensors";
  if (has("autoround_version")) return "auto-round";
  if (has("zero_point") || has("w_bit") || has("q_group_size")) return "awq";
  if (has("bits") && (has("desc_act") || has("sym") || has("true_sequential"))) return "gptq";
  return "";
}

// Fills in the method, and steps into a declaration that stands once more inside itself, as some
// tools wrote it.
Status Complete(QuantizationConfig& config) {
  PREPACK_TRY(RequireObject(*config.fields, config.where));
  if (const Json* inner = JsonMember(*config.fields, "quantization_config")) {
    config.where = FieldPath(config.where, "quantization_config");
    config.fields = inner;
    PREPACK_TRY(RequireObject(*inner, config.where));
  }
  for (const std::string_view key : {"quant_method", "method"}) {
    PREPACK_TRY_ASSIGN(std::optional<std::string> method,
                       OptionalString(*config.fields, key, config.where));
    if (method) {
      config.method = CanonicalMethod(*method);
      return {};
    }
  }
  config.method = MethodOfKeys(*config.fields);
  return {};
}

}  // namespace

std::vector<ConfigPath> DeclarationPaths(const Json& config) {
  std::vector<ConfigPath> paths;
  const auto add = [&](const Json* object, ConfigPath path) {
    if (object != nullptr && JsonMember(*object, path.back()) != nullptr) {
      paths.push_back(std::move(path));
    }
  };
  add(&config, {std::string(kDeclaration)});
  for (const std::string_view nested : NestedConfigNames()) {
    add(JsonMember(config, nested), {std::string(nested), std::string(kDeclaration)});
  }
  add(&config, {std::string(kOldDeclaration)});
  if (paths.empty()) FindNested(config, {}, paths);
  return paths;
}

namespace {

// A file of another quantizer, beside a declaration in config.json.
bool IsLeftBehind(const QuantizationConfig& config, const QuantizationConfig& first) {
  return config.beside && !first.beside && !config.method.empty() && config.method != first.method;
}

Result<std::vector<QuantizationConfig>> FindAll(const Checkpoint& checkpoint) {
  std::vector<QuantizationConfig> configs = Locate(checkpoint);
  for (QuantizationConfig& config : configs) {
    PREPACK_TRY(Complete(config));
  }
  return configs;
}

}  // namespace

Status CopiesDisagree(std::string_view where, std::string_view found, std::string_view expected,
                      std::string_view first) {
  return Malformed(where, "two copies of the quantization config disagree")
      .Found(found)
      .Expected(fmt::format("{}, as {} says", expected, first))
      .Hint("Make them equal: readers differ in which copy they use")
      .Id(FindingId("config-conflict"));
}

Status ReportLeftBehind(const Checkpoint& checkpoint, FindingTally& findings) {
  PREPACK_TRY_ASSIGN(const std::vector<QuantizationConfig> configs, FindAll(checkpoint));
  for (const QuantizationConfig& config : configs) {
    if (!IsLeftBehind(config, configs.front())) continue;
    findings.Add("config-left-behind", config.where,
                 fmt::format("the file declares \"{}\", and {} \"{}\", which counts",
                             Printable(config.method), configs.front().where,
                             Printable(configs.front().method)));
  }
  return {};
}

Result<std::vector<QuantizationConfig>> FindQuantizationConfigs(const Checkpoint& checkpoint) {
  PREPACK_TRY_ASSIGN(std::vector<QuantizationConfig> configs, FindAll(checkpoint));
  if (configs.empty()) return RefuseUndeclared(checkpoint);
  const QuantizationConfig declared = configs.front();
  std::erase_if(configs,
                [&](const QuantizationConfig& config) { return IsLeftBehind(config, declared); });
  const QuantizationConfig& first = configs.front();
  if (first.method.empty()) {
    if (IsMlx(checkpoint)) return RefuseMlx(first.where);
    if (JsonMember(*first.fields, "qformat_weight") != nullptr) {
      return Unsupported(first.where, "Mistral's own form of a checkpoint is not supported")
          .Found("qformat_weight")
          .Expected("config.json, and tensors named as transformers names them")
          .Hint("Most releases also have the model in that form: download all of the files")
          .Id(FindingId("method-unsupported"));
    }
    return Unsupported(first.where, "quant_method is missing, so the format is unknown")
        .Id(FindingId("config-method-missing"));
  }
  for (QuantizationConfig& config : configs) {
    if (config.method.empty()) config.method = first.method;
    if (config.method == first.method) continue;
    return Malformed(config.where, "two declarations name different quantization methods")
        .Found(fmt::format("\"{}\"", Printable(config.method)))
        .Expected(fmt::format("\"{}\", as {} says", Printable(first.method), first.where))
        .Hint("Remove the declaration that does not belong to these weights")
        .Id(FindingId("config-conflict"));
  }
  return configs;
}

}  // namespace prepack
