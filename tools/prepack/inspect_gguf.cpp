#include "inspect_gguf.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "json_reports.h"
#include "prepack/base/text.h"
#include "table.h"

namespace prepack::cli {
namespace {

constexpr uint64_t kShownBytes = 60;     // of a text
constexpr uint64_t kShownElements = 4;   // of an array
constexpr uint64_t kMostBytes = 65'536;  // of a text in JSON

struct TypeUse {
  size_t tensors = 0;
  uint64_t bytes = 0;
  uint64_t weights = 0;
};

std::map<std::string_view, TypeUse> UseOfTypes(const gguf::Model& model) {
  std::map<std::string_view, TypeUse> uses;
  for (const gguf::Tensor& tensor : model.tensors()) {
    const gguf::GgmlTypeInfo& info = InfoOf(tensor.type);
    TypeUse& use = uses[info.name];
    ++use.tensors;
    use.bytes += tensor.bytes;
    use.weights += tensor.bytes / info.bytes * info.block;
  }
  return uses;
}

std::string TypeText(const gguf::Value& value) {
  if (value.type != gguf::ValueType::kArray) return std::string(gguf::ValueTypeName(value.type));
  return fmt::format("{}[{}]", gguf::ValueTypeName(value.element), value.count);
}

Result<std::vector<std::string>> FirstElements(const gguf::Model& model, const gguf::Value& value,
                                               uint64_t most_bytes) {
  if (value.element == gguf::ValueType::kString) {
    return model.ReadTexts(value, kShownElements, most_bytes);
  }
  PREPACK_TRY_ASSIGN(const std::vector<uint64_t> numbers, model.ReadNumbers(value, kShownElements));
  std::vector<std::string> texts;
  texts.reserve(numbers.size());
  for (const uint64_t bits : numbers) texts.push_back(gguf::NumberText(value.element, bits));
  return texts;
}

Result<std::string> ShownValue(const gguf::Model& model, const gguf::Value& value) {
  if (value.type == gguf::ValueType::kString) {
    PREPACK_TRY_ASSIGN(const std::string text, model.ReadText(value, kShownBytes));
    return Printable(text) + (value.count > kShownBytes ? "…" : "");
  }
  if (value.type != gguf::ValueType::kArray) return gguf::NumberText(value.type, value.bits);
  PREPACK_TRY_ASSIGN(const std::vector<std::string> first,
                     FirstElements(model, value, kShownBytes / kShownElements));
  return Printable(fmt::format("{}", fmt::join(first, ", "))) +
         (value.count > kShownElements ? ", …" : "");
}

// Numbers that JSON has as such; what is not finite as null.
Json NumberJson(const gguf::Value& value) {
  if (value.type == gguf::ValueType::kBool) return value.bits != 0;
  if (const auto number = UintOf(value)) return *number;
  const double number = gguf::NumberOf(value.type, value.bits);
  const bool is_float =
      value.type == gguf::ValueType::kFloat32 || value.type == gguf::ValueType::kFloat64;
  // Negative integers: NumberText has all their digits.
  return is_float ? JsonNumber(number) : Json(std::stoll(gguf::NumberText(value.type, value.bits)));
}

Result<Json> ValueJson(const gguf::Model& model, const gguf::Value& value) {
  Json json = {{"key", value.key}, {"type", gguf::ValueTypeName(value.type)}};
  if (value.type == gguf::ValueType::kArray) {
    PREPACK_TRY_ASSIGN(const std::vector<std::string> first,
                       FirstElements(model, value, kMostBytes));
    json["element"] = gguf::ValueTypeName(value.element);
    json["count"] = value.count;
    json["first"] = first;
  } else if (value.type == gguf::ValueType::kString) {
    PREPACK_TRY_ASSIGN(json["value"], model.ReadText(value, kMostBytes));
    json["bytes"] = value.count;
  } else {
    json["value"] = NumberJson(value);
  }
  return json;
}

std::string TypesText(const gguf::Model& model) {
  Table table({{"type"},
               {"tensors", Align::kRight},
               {"weights", Align::kRight},
               {"size", Align::kRight},
               {"bits/weight", Align::kRight}});
  for (const auto& [name, use] : UseOfTypes(model)) {
    table.AddRow({std::string(name), fmt::format("{}", use.tensors), HumanCount(use.weights),
                  HumanBytes(use.bytes),
                  fmt::format("{:.2f}", gguf::FindGgmlType(name)->BitsPerWeight())});
  }
  return table.Render(2);
}

std::string TensorsTable(const gguf::Model& model) {
  Table table({{"tensor"},
               {"type"},
               {"dimensions"},
               {"size", Align::kRight},
               {"file"},
               {"offset", Align::kRight}});
  for (const gguf::Tensor& tensor : model.tensors()) {
    table.AddRow({Printable(tensor.name), std::string(InfoOf(tensor.type).name),
                  ShapeText({tensor.dims.begin(), tensor.dims.size()}), HumanBytes(tensor.bytes),
                  Printable(model.files()[tensor.file].name), fmt::format("{}", tensor.offset)});
  }
  return table.Render(2);
}

}  // namespace

Result<std::string> GgufText(const gguf::Model& model, bool tensors) {
  std::string text = fmt::format(
      "{}: GGUF version {}, {}\n{}, {}, in {}\n\n", Printable(model.path().string()),
      model.version(),
      model.architecture().empty() ? "no architecture" : Printable(model.architecture()),
      Plural(model.tensors().size(), "tensor"), HumanBytes(model.total_bytes()),
      Plural(model.files().size(), "file"));
  Table values({{"key"}, {"type"}, {"value"}});
  for (const gguf::Value& value : model.values()) {
    PREPACK_TRY_ASSIGN(std::string shown, ShownValue(model, value));
    values.AddRow({Printable(value.key), TypeText(value), std::move(shown)});
  }
  text += values.Render(2) + "\n" + TypesText(model);
  return tensors ? text + "\n" + TensorsTable(model) : text;
}

Result<Json> GgufJson(const gguf::Model& model) {
  Json json = JsonDocument("prepack-inspect-gguf");
  json["path"] = model.path().string();
  json["gguf_version"] = model.version();
  json["alignment"] = model.alignment();
  json["architecture"] = model.architecture().empty() ? Json(nullptr) : Json(model.architecture());
  json["files"] = Json::array();
  for (const gguf::ModelFile& file : model.files()) {
    json["files"].push_back({{"name", file.name},
                             {"bytes", file.file.size()},
                             {"tensors", file.tensors},
                             {"data_start", file.data_start}});
  }
  json["metadata"] = Json::array();
  for (const gguf::Value& value : model.values()) {
    PREPACK_TRY_ASSIGN(Json entry, ValueJson(model, value));
    json["metadata"].push_back(std::move(entry));
  }
  json["types"] = Json::array();
  for (const auto& [name, use] : UseOfTypes(model)) {
    json["types"].push_back(
        {{"type", name}, {"tensors", use.tensors}, {"weights", use.weights}, {"bytes", use.bytes}});
  }
  json["tensors"] = Json::array();
  for (const gguf::Tensor& tensor : model.tensors()) {
    json["tensors"].push_back({{"name", tensor.name},
                               {"type", InfoOf(tensor.type).name},
                               {"dims", std::vector(tensor.dims.begin(), tensor.dims.end())},
                               {"file", model.files()[tensor.file].name},
                               {"offset", tensor.offset},
                               {"bytes", tensor.bytes}});
  }
  return json;
}

}  // namespace prepack::cli
