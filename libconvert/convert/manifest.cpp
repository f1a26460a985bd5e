#include "convert/manifest.h"

#include <fmt/format.h>

#include "base/hash.h"
#include "base/status.h"
#include "convert/manifest_text.h"
#include "convert/scheme_json.h"

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
  Json json = {{"layout", module.layout},
               {"scheme", SchemeName(module.scheme)},
               {"shape", {module.n, module.k}},
               {"group_size", module.scheme.group_size},
               {"symmetric", module.scheme.symmetric},
               {"numbers", SchemeJson(module.scheme)},
               {"stored_scale_dtype", DTypeName(module.stored_scale_dtype)},
               {"scale_rounding", module.scale_rounding},
               {"rounded_scales", module.rounded_scales},
               {"source_xxh3_128", module.source_xxh3_128},
               {"parts", std::move(parts)}};
  if (module.weights_desc) json["memory_descriptor"] = BlockedDescJson(*module.weights_desc);
  if (module.onednn) json["onednn"] = OneDnnOriginJson(*module.onednn);
  return json;
}

Json ManifestJson(const Manifest& manifest) {
  Json json = {{"manifest_version", kManifestVersion},
               {"prepack_version", manifest.prepack_version},
               {"target", manifest.target},
               {"activation_dtype", DTypeName(manifest.activation_dtype)},
               {"scales", manifest.exact_scales ? "exact" : "runtime"},
               {"source",
                {{"format", manifest.source_format},
                 {"fingerprint", manifest.source_fingerprint},
                 {"quantization_config", manifest.source_quantization_config}}}};
  if (!manifest.source_path.empty()) json["source"]["path"] = manifest.source_path;
  Json& layouts = json["layouts"] = Json::object();
  for (const auto& [id, layout] : manifest.layouts) {
    layouts[id] = {{"version", layout.version}, {"fingerprint", layout.fingerprint}};
  }
  Json& modules = json["modules"] = Json::object();
  for (const auto& [name, module] : manifest.modules) modules[name] = ModuleJson(module);
  Json& kept = json["kept"] = Json::object();
  for (const auto& [name, why] : manifest.kept) kept[name] = why;
  Json& dequantized = json["dequantized"] = Json::object();
  for (const auto& [name, why] : manifest.dequantized) dequantized[name] = why;
  Json& tensors = json["tensors"] = Json::array();
  for (const TensorRecord& tensor : manifest.tensors) tensors.push_back(TensorJson(tensor));
  Json& files = json["files"] = Json::object();
  for (const auto& [name, file] : manifest.files) {
    files[name] = {{"bytes", file.bytes}, {"xxh3_128", file.xxh3_128}};
  }
  return json;
}

}  // namespace

PackRequest RequestOf(const Manifest& manifest, const ModuleRecord& record) {
  PackRequest request{.scheme = record.scheme,
                      .n = record.n,
                      .k = record.k,
                      .activation_dtype = manifest.activation_dtype,
                      .stored_scale_dtype = record.stored_scale_dtype,
                      .bias_dtype = std::nullopt,
                      .reordered = record.parts.contains("input_order"),
                      .exact_scales = manifest.exact_scales,
                      .weights_desc = record.weights_desc};
  // The dtype in the source does not matter any more, only that there was a bias.
  if (record.parts.contains("bias")) request.bias_dtype = DType::kF32;
  return request;
}

bool IsSourcePath(const std::string& path) {
  return !path.empty() && path.front() != '/' && path.size() <= kMaxSourcePathBytes &&
         Printable(path, kMaxSourcePathBytes) == path;
}

std::string ManifestText(const Manifest& manifest) {
  std::string text = ManifestJson(manifest).dump(2);
  text.resize(text.size() - 2);  // the closing "\n}": one more member follows
  const std::string hash = Xxh3Hex(text);
  return fmt::format("{}{}{}\"\n}}\n", text, kManifestHashPrefix, hash);
}

}  // namespace prepack
