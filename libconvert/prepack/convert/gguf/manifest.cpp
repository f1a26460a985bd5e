#include "prepack/convert/gguf/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "prepack/base/version.h"
#include "prepack/container/json_fields.h"
#include "prepack/io/file.h"

namespace prepack::gguf {
namespace {

constexpr std::string_view kKind = "prepack-gguf";
constexpr uint64_t kMostBytes = uint64_t{4} << 30;

Json RowsJson(const Manifest& manifest, const ManifestTensor& tensor) {
  Json rows = Json::array();
  for (const RowPiece& piece : tensor.rows) {
    rows.push_back({manifest.sources[piece.source], piece.first, LoopsJson(piece)});
  }
  return rows;
}

Json TensorJson(const Manifest& manifest, const ManifestTensor& tensor) {
  Json json = {{"type", InfoOf(tensor.type).name}, {"hash", tensor.hash.Hex()}};
  if (!tensor.rows.empty()) json["rows"] = RowsJson(manifest, tensor);
  if (tensor.rounded.any()) json["rounded"] = RoundedJson(tensor.rounded);
  return json;
}

class ManifestReader {
 public:
  explicit ManifestReader(std::string where) : where_(std::move(where)) {}

  Result<Manifest> Read(const std::string& text) {
    const auto add = [&](const std::string& name, const Json& entry) {
      if (status_.ok()) Add(name, entry);
    };
    const JsonEntries entries{.of = "tensors", .visit = add};
    PREPACK_TRY_ASSIGN(const Json root,
                       ParseJsonStrict(text, where_, {.max_values = SIZE_MAX}, &entries));
    JsonFields fields(root, where_, status_);
    if (fields.Text("kind") != kKind) {
      fields.Keep(Malformed(where_, "not the manifest of a GGUF file").Expected(kKind));
    }
    fields.Uint("version", 1, 1);
    manifest_.source = fields.Text("source");
    manifest_.source_format = fields.Text("source_format");
    manifest_.source_identity = fields.Text("source_identity");
    manifest_.converter_class = fields.Text("converter_class");
    if (!status_.ok()) return status_;
    return std::move(manifest_);
  }

 private:
  void Add(const std::string& name, const Json& entry) {
    JsonFields fields(entry, fmt::format("{}: tensor {}", where_, name), status_);
    ManifestTensor tensor;
    const std::string type = fields.Text("type");
    const GgmlTypeInfo* info = FindGgmlType(type);
    const std::optional<Hash128> hash = ParseHash128(fields.Text("hash"));
    if (info == nullptr || !hash) {
      return fields.Keep(Malformed(fields.where(), "no type and hash of a tensor"));
    }
    tensor.type = info->type;
    tensor.hash = *hash;
    if (fields.Has("rows")) {
      for (const Json& piece : *fields.Array("rows")) AddPiece(piece, fields, tensor);
    }
    if (fields.Has("rounded")) {
      JsonFields rounded = fields.In("rounded");
      tensor.rounded = {.scales = rounded.Uint("scales"),
                        .minima = rounded.Uint("minima"),
                        .weights = rounded.Uint("weights")};
      if (rounded.Has("quantized")) tensor.rounded.quantized = rounded.Uint("quantized");
    }
    manifest_.tensors.emplace(name, std::move(tensor));
  }

  void AddPiece(const Json& json, JsonFields& fields, ManifestTensor& tensor) {
    constexpr uint64_t kAnywhere = uint64_t{1} << 41;
    std::optional<RowPiece> piece = PieceFromJson(json);
    if (!piece || !json[0].is_string() || !piece->IsInside(kAnywhere)) {
      return fields.Keep(Malformed(fields.where(), "not a run of rows"));
    }
    piece->source = NumberOf(json[0].get<std::string>());
    tensor.rows.push_back(*piece);
  }

  size_t NumberOf(const std::string& source) {
    const auto [it, is_new] = numbers_.try_emplace(source, manifest_.sources.size());
    if (is_new) manifest_.sources.push_back(source);
    return it->second;
  }

  std::string where_;
  Status status_;
  Manifest manifest_;
  std::map<std::string, size_t> numbers_;
};

}  // namespace

std::filesystem::path ManifestOf(const std::filesystem::path& file) {
  constexpr std::string_view kOfSplit = "-#####-of-#####.gguf";
  const std::string name = file.filename().string();
  std::string_view stem = name;
  if (name.size() > kOfSplit.size()) {
    const std::string_view end = stem.substr(name.size() - kOfSplit.size());
    const bool is_split = std::ranges::equal(end, kOfSplit, [](char c, char like) {
      return like == '#' ? c >= '0' && c <= '9' : c == like;
    });
    if (is_split) stem.remove_suffix(kOfSplit.size());
  }
  const std::string_view rest = stem.size() == name.size() ? "" : ".gguf";
  return file.parent_path() / fmt::format("{}{}.prepack.json", stem, rest);
}

// Where no weight was changed, JSON has no number for the ratio: it is null.
Json RoundedJson(const Rounded& rounded) {
  Json json = {
      {"scales", rounded.scales}, {"minima", rounded.minima}, {"weights", rounded.weights}};
  if (rounded.quantized != 0) {
    json["quantized"] = rounded.quantized;
    json["sqnr_db"] = rounded.sqnr();
  }
  return json;
}

std::string ManifestText(const Manifest& manifest) {
  Json json = {{"kind", kKind},
               {"version", 1},
               {"prepack_version", kVersion},
               {"source", manifest.source},
               {"source_format", manifest.source_format},
               {"source_identity", manifest.source_identity},
               {"converter_class", manifest.converter_class}};
  Json& tensors = json["tensors"] = Json::object();
  for (const auto& [name, tensor] : manifest.tensors) tensors[name] = TensorJson(manifest, tensor);
  return json.dump(1) + "\n";
}

Result<Manifest> ReadManifest(const std::filesystem::path& path, const std::string& hash) {
  PREPACK_TRY_ASSIGN(const std::string text, ReadTextFile(path, kMostBytes));
  if (const std::string found = Xxh3Hex(text); found != hash) {
    return Malformed(path.string(), "this is not the manifest that the GGUF file was made with")
        .Found(fmt::format("xxh3-128 {}", found))
        .Expected(hash)
        .Hint("Convert the model again");
  }
  return ManifestReader(path.string()).Read(text);
}

}  // namespace prepack::gguf
