#include "convert/manifest.h"

#include <fmt/format.h>

#include "base/hash.h"
#include "convert/manifest_text.h"

namespace prepack {
namespace {

Json TensorJson(const TensorRecord& tensor) {
  return {{"tensor", tensor.tensor}, {"file", tensor.file},
          {"offset", tensor.offset}, {"dtype", DTypeName(tensor.dtype)},
          {"shape", tensor.shape},   {"xxh3_128", tensor.xxh3_128}};
}

Json ModuleJson(const ModuleRecord& module) {
  Json parts = Json::object();
  for (const auto& [name, part] : module.parts) parts[name] = TensorJson(part);
  return {{"layout", module.layout},
          {"scheme", SchemeName(module.scheme)},
          {"shape", {module.n, module.k}},
          {"group_size", module.scheme.group_size},
          {"granularity", GranularityName(module.scheme.granularity)},
          {"symmetric", module.scheme.symmetric},
          {"stored_scale_dtype", DTypeName(module.stored_scale_dtype)},
          {"scale_rounding", module.scale_rounding},
          {"source_xxh3_128", module.source_xxh3_128},
          {"parts", std::move(parts)}};
}

Json ManifestJson(const Manifest& manifest) {
  Json json = {{"manifest_version", kManifestVersion},
               {"prepack_version", manifest.prepack_version},
               {"target", manifest.target},
               {"activation_dtype", DTypeName(manifest.activation_dtype)},
               {"source",
                {{"format", manifest.source_format},
                 {"fingerprint", manifest.source_fingerprint},
                 {"quantization_config", manifest.source_quantization_config}}}};
  Json& layouts = json["layouts"] = Json::object();
  for (const auto& [id, layout] : manifest.layouts) {
    layouts[id] = {{"version", layout.version}, {"fingerprint", layout.fingerprint}};
  }
  Json& modules = json["modules"] = Json::object();
  for (const auto& [name, module] : manifest.modules) modules[name] = ModuleJson(module);
  Json& kept = json["kept"] = Json::object();
  for (const auto& [name, why] : manifest.kept) kept[name] = why;
  Json& tensors = json["tensors"] = Json::array();
  for (const TensorRecord& tensor : manifest.tensors) tensors.push_back(TensorJson(tensor));
  Json& files = json["files"] = Json::object();
  for (const auto& [name, file] : manifest.files) {
    files[name] = {{"bytes", file.bytes}, {"xxh3_128", file.xxh3_128}};
  }
  return json;
}

}  // namespace

std::string ManifestText(const Manifest& manifest) {
  std::string text = ManifestJson(manifest).dump(2);
  text.resize(text.size() - 2);  // the closing "\n}": one more member follows
  const std::string hash = Xxh3Hex(text);
  return fmt::format("{}{}{}\"\n}}\n", text, kManifestHashPrefix, hash);
}

}  // namespace prepack
