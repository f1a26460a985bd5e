#include "prepack/convert/gguf/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/base/version.h"
#include "prepack/container/json_fields.h"
#include "prepack/gguf/keys.h"
#include "prepack/io/file.h"

namespace prepack::gguf {
namespace {

constexpr std::string_view kKind = "prepack-gguf";
constexpr uint64_t kMostBytes = uint64_t{4} << 30;

Json RowsJson(const Manifest& manifest, const std::vector<RowPiece>& pieces) {
  Json rows = Json::array();
  for (const RowPiece& piece : pieces) {
    rows.push_back({manifest.sources[piece.source], piece.first, LoopsJson(piece)});
  }
  return rows;
}

Json TensorJson(const Manifest& manifest, const ManifestTensor& tensor) {
  Json json = {{"type", InfoOf(tensor.type).name}, {"hash", tensor.hash.Hex()}};
  if (!tensor.rows.empty()) json["rows"] = RowsJson(manifest, tensor.rows);
  if (tensor.group != 0) json["group"] = tensor.group;
  const Origin& origin = tensor.origin;
  if (!origin.source.empty()) json["of"] = origin.source;
  if (!origin.elements.empty()) json["elements"] = RowsJson(manifest, origin.elements);
  if (origin.plus != 0) json["plus"] = origin.plus;
  if (tensor.rounded.any()) json["rounded"] = RoundedJson(tensor.rounded);
  return json;
}

// [dtype, dimensions...]
Json ShapeJson(const SourceShape& source) {
  Json json = Json::array();
  json.push_back(source.dtype ? Json(DTypeName(*source.dtype)) : Json());
  for (const uint64_t dim : source.shape) json.push_back(dim);
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
    for (const auto& [name, shape] : fields.Object("shapes")->items())
      AddShape(name, shape, fields);
    manifest_.left_out = fields.Texts("left_out");
    if (fields.Has("run")) {
      manifest_.run = fields.Take(ReadIdentity(*fields.Object("run"), where_));
      manifest_.source_fingerprint = fields.Text("source_fingerprint");
    }
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
      for (const Json& piece : *fields.Array("rows")) AddPiece(piece, fields, tensor.rows);
    }
    if (fields.Has("group")) tensor.group = fields.Uint("group");
    if (fields.Has("of")) tensor.origin.source = fields.Text("of");
    if (fields.Has("elements")) {
      for (const Json& piece : *fields.Array("elements")) {
        AddPiece(piece, fields, tensor.origin.elements);
      }
    }
    if (fields.Has("plus") && fields.Any("plus")->is_number()) {
      tensor.origin.plus = fields.Any("plus")->get<float>();
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

  void AddPiece(const Json& json, JsonFields& fields, std::vector<RowPiece>& pieces) {
    constexpr uint64_t kAnywhere = uint64_t{1} << 41;
    std::optional<RowPiece> piece = PieceFromJson(json);
    if (!piece || !json[0].is_string() || !piece->IsInside(kAnywhere)) {
      return fields.Keep(Malformed(fields.where(), "not a run of rows"));
    }
    piece->source = NumberOf(json[0].get<std::string>());
    pieces.push_back(*piece);
  }

  void AddShape(const std::string& name, const Json& json, JsonFields& fields) {
    SourceShape source;
    std::vector<uint64_t> dims;
    bool sound = json.is_array() && !json.empty();
    for (size_t i = 1; sound && i < json.size(); ++i) {
      sound = json[i].is_number_unsigned();
      if (sound) dims.push_back(json[i].get<uint64_t>());
    }
    if (sound && json[0].is_string()) {
      source.dtype = DTypeFromName(json[0].get<std::string>());
      sound = source.dtype.has_value();
    }
    source.shape = TensorShape(dims);
    if (!sound || !CheckedProduct(dims)) {
      return fields.Keep(Malformed(fields.where(), fmt::format("no shape of tensor {}", name)));
    }
    manifest_.shapes.emplace(name, std::move(source));
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

Manifest NamesOf(const Sources& sources) {
  Manifest manifest;
  manifest.left_out = sources.left_out;
  for (const Source& source : sources.sources) {
    manifest.sources.push_back(source.name);
    if (source.plain != nullptr) {
      manifest.shapes[source.name] = {source.plain->dtype, source.plain->shape};
    } else if (source.transposed) {  // of a matrix that is quantized, the rows say it
      manifest.shapes[source.name] = {
          std::nullopt,
          TensorShape{source.modules.size(), source.rows_of_module(), source.columns()}};
    }
  }
  return manifest;
}

void NoteLeftOut(Manifest& manifest) {
  std::set<std::string_view> used;
  for (const auto& [name, tensor] : manifest.tensors) {
    used.insert(tensor.origin.source);
    for (const auto* pieces : {&tensor.rows, &tensor.origin.elements}) {
      for (const RowPiece& piece : *pieces) used.insert(manifest.sources[piece.source]);
    }
  }
  for (const std::string& name : manifest.sources) {
    if (!used.contains(name)) manifest.left_out.push_back(name);
  }
}

Result<std::optional<std::string>> ManifestHashOf(const Model& model) {
  const Value* value = model.FindValue(kManifestHash);
  if (value == nullptr || value->type != ValueType::kString ||
      value->count != kManifestHashDigits) {
    return std::optional<std::string>();
  }
  PREPACK_TRY_ASSIGN(std::string hash, model.ReadText(*value, kManifestHashDigits));
  return std::optional(std::move(hash));
}

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
  Json& shapes = json["shapes"] = Json::object();
  for (const auto& [name, shape] : manifest.shapes) shapes[name] = ShapeJson(shape);
  json["left_out"] = manifest.left_out;
  if (manifest.run) {
    json["run"] = IdentityJson(*manifest.run);
    json["source_fingerprint"] = manifest.source_fingerprint;
  }
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
