// What the second path must know from config.json, and the comparison of the packed config.json
// with the source's, both without the JSON and config code that convert uses.

#include "prepack/verify/second/tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/status.h"
#include "prepack/verify/second/fields.h"

namespace prepack {
namespace {

// Walks over the values of a document and notes those that are not containers, each with the keys
// that lead to it. An object that held only a declaration is empty without it.
class ValueWalk {
 public:
  // `in_bf16`: with the dtypes of the model and of those in it as bf16.
  explicit ValueWalk(std::string_view text, bool in_bf16 = false)
      : left_(text), in_bf16_(in_bf16) {}

  // "a/b: 1", in the order of the text.
  std::vector<std::string> Take() {
    for (std::string_view token = Next(); !token.empty(); token = Next()) Visit(token);
    return std::move(values_);
  }

 private:
  std::string_view Next() {
    left_.remove_prefix(std::min(left_.find_first_not_of(" \t\r\n"), left_.size()));
    if (left_.empty()) return {};
    size_t length = 1;
    if (left_[0] == '"') {
      bool escaped = false;
      while (length < left_.size() && (escaped || left_[length] != '"')) {
        escaped = !escaped && left_[length] == '\\';
        ++length;
      }
      ++length;
    } else if (std::string_view("{}[]:,").find(left_[0]) == std::string_view::npos) {
      length = std::min(left_.find_first_of(" \t\r\n{}[]:,\""), left_.size());
    }
    const std::string_view token = left_.substr(0, length);
    left_.remove_prefix(token.size());
    return token;
  }

  void Visit(std::string_view token) {
    const char kind = token[0];
    if (kind == '{' || kind == '[') {
      open_.push_back(kind == '{' ? std::string() : "[]");
      awaits_key_ = kind == '{';
    } else if (kind == '}' || kind == ']') {
      if (!open_.empty()) open_.pop_back();
      awaits_key_ = false;
    } else if (kind == ',') {
      awaits_key_ = !open_.empty() && open_.back() != "[]";
    } else if (kind != ':' && awaits_key_) {
      open_.back() = token;
      awaits_key_ = false;
    } else if (kind != ':') {
      Note(token);
    }
  }

  void Note(std::string_view value) {
    const bool declares = std::ranges::any_of(open_, [](const std::string& key) {
      return key == "\"quantization_config\"" || key == "\"compression_config\"";
    });
    if (declares) return;
    if (in_bf16_ && value.starts_with('"') && IsModelDType()) value = "\"bfloat16\"";
    values_.push_back(fmt::format("{}: {}", fmt::join(open_, "/"), value));
  }

  bool IsModelDType() const {
    if (open_.empty()) return false;
    const auto outer = std::span(open_).first(open_.size() - 1);
    return (open_.back() == "\"dtype\"" || open_.back() == "\"torch_dtype\"") &&
           std::ranges::all_of(outer,
                               [](const std::string& key) { return key.ends_with("_config\""); });
  }

  std::string_view left_;
  bool in_bf16_;
  std::vector<std::string> open_;  // the key in each open object; "[]" in an array
  bool awaits_key_ = false;
  std::vector<std::string> values_;
};

}  // namespace

std::string WhyConfigDiffers(std::string_view source, std::string_view packed, bool becomes_bf16) {
  const std::vector<std::string> expected = ValueWalk(source, becomes_bf16).Take();
  const std::vector<std::string> found = ValueWalk(packed).Take();
  const auto [in_source, in_packed] = std::ranges::mismatch(expected, found);
  if (in_source == expected.end() && in_packed == found.end()) return "";
  return fmt::format("found {}, expected {}",
                     in_packed == found.end() ? "nothing" : Printable(*in_packed),
                     in_source == expected.end() ? "nothing" : Printable(*in_source));
}

namespace {

bool IsDeclaration(const std::string& key) {
  return key == "quantization_config" || key == "compression_config";
}

// Some writers nested the declaration once more.
const Json* Unwrapped(const Json* declaration) {
  const auto inner = declaration->find("quantization_config");
  return inner != declaration->end() && inner->is_object() ? &*inner : declaration;
}

void AddNested(const Json& config, std::vector<const Json*>& found) {
  std::vector<const Json*> level = {&config};
  while (!level.empty()) {
    std::vector<const Json*> next;
    for (const Json* object : level) {
      for (const auto& [key, value] : object->items()) {
        if (!value.is_object()) continue;
        if (IsDeclaration(key)) {
          found.push_back(Unwrapped(&value));
        } else {
          next.push_back(&value);
        }
      }
    }
    level = std::move(next);
  }
}

bool IsKey(const std::string& name, const std::string& key, KeyCase key_case) {
  if (key_case == KeyCase::kExact) return name == key;
  return std::ranges::equal(name, key, [](char stored, char asked) {
    return (stored >= 'A' && stored <= 'Z' ? stored - 'A' + 'a' : stored) == asked;
  });
}

}  // namespace

std::vector<const Json*> SecondDeclarations(const Checkpoint& source) {
  std::vector<const Json*> found;
  AddNested(source.config(), found);
  for (const auto& [file, json] : source.side_configs()) {
    if (file != "params.json") {
      found.push_back(Unwrapped(&json));
      continue;
    }
    if (!source.config().empty()) continue;
    for (const char* key : {"quantization_config", "quantization"}) {
      const auto declared = json.find(key);
      if (declared != json.end() && declared->is_object()) found.push_back(Unwrapped(&*declared));
    }
  }
  return found;
}

const Json* SecondConfigField(const Checkpoint& source, const std::string& key, KeyCase key_case) {
  for (const Json* declaration : SecondDeclarations(source)) {
    for (const auto& [name, field] : declaration->items()) {
      if (IsKey(name, key, key_case) && !field.is_null()) return &field;
    }
  }
  return nullptr;
}

std::vector<const Json*> SecondConfigValues(const Checkpoint& source, const std::string& key,
                                            KeyCase key_case) {
  std::vector<const Json*> found;
  std::vector<const Json*> left = SecondDeclarations(source);
  while (!left.empty()) {
    const Json& value = *left.back();
    left.pop_back();
    if (!value.is_object()) continue;
    for (const auto& [name, member] : value.items()) {
      if (IsKey(name, key, key_case) && !member.is_null()) found.push_back(&member);
      left.push_back(&member);
    }
  }
  return found;
}

std::vector<uint64_t> SecondConfigNumbers(const Checkpoint& source, const std::string& key,
                                          KeyCase key_case) {
  std::vector<uint64_t> numbers;
  for (const Json* value : SecondConfigValues(source, key, key_case)) {
    if (!value->is_number_integer()) continue;
    const auto number = value->get<int64_t>();
    if (number > 0) numbers.push_back(static_cast<uint64_t>(number));
  }
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

bool SecondAllSymmetric(const Checkpoint& source, KeyCase key_case) {
  const std::vector<const Json*> values = SecondConfigValues(source, "sym", key_case);
  return std::ranges::none_of(values, [](const Json* value) { return *value == false; });
}

namespace {

constexpr std::string_view kZeros = ".qzeros";
constexpr uint64_t kMaxModules = 512;
constexpr uint64_t kMaxColumns = 256;
constexpr uint64_t kMaxLines = 32;  // of words, of one group
constexpr uint64_t kEnoughCodes = 4096;
constexpr double kClose = 0.25;

struct Mean {
  double sum = 0;  // of code − field
  uint64_t codes = 0;

  bool IsNear(double value) const {
    return codes >= kEnoughCodes && std::abs(sum / static_cast<double>(codes) - value) < kClose;
  }
};

// Adds the codes of one module's first group. Modules that are unsuitable or cannot be read are
// left out.
void AddModule(const Checkpoint& source, const std::string& name, Mean& mean) {
  const StoredTensor* codes = source.Find(name + ".qweight");
  const StoredTensor* zeros = source.Find(name + ".qzeros");
  const StoredTensor* scales = source.Find(name + ".scales");
  for (const StoredTensor* tensor : {codes, zeros, scales}) {
    if (tensor == nullptr || tensor->shape.size() != 2 || tensor->shape[0] == 0) return;
  }
  const uint64_t channels = codes->shape[1];
  if (channels < 16 || channels != scales->shape[1]) return;
  const uint64_t bits = zeros->shape[1] * 32 / channels;
  if ((bits != 2 && bits != 4) || zeros->shape[1] * 32 != channels * bits) return;
  const auto width = static_cast<uint32_t>(bits);
  const uint64_t columns = std::min(channels, kMaxColumns);
  const uint64_t lines = std::min(
      {codes->shape[0], kMaxLines, std::max<uint64_t>(1, codes->shape[0] / scales->shape[0])});
  std::vector<uint32_t> words;
  std::vector<uint32_t> fields;
  if (!ReadSecond(source, *codes, {0, lines, 0, columns}, words).ok() ||
      !ReadSecond(source, *zeros, {0, 1, 0, CeilDiv(columns * bits, 32)}, fields).ok()) {
    return;
  }
  const SecondFields numbers{.bits = width};
  const uint32_t first = numbers.At(fields, 0);
  bool varies = false;
  for (uint64_t n = 1; n < columns; ++n) varies |= numbers.At(fields, n) != first;
  if (!varies) return;
  // Leave out as many at either end, whichever of the two is stored.
  const uint32_t low = bits == 4 ? 2 : 0;
  const uint32_t high = (1U << width) - 2 - low;
  for (uint64_t n = 0; n < columns; ++n) {
    const uint32_t field = numbers.At(fields, n);
    if (field < low || field > high) continue;
    for (uint64_t i = 0; i < lines * (32 / bits); ++i) {
      const uint32_t code = numbers.At(std::span(words).subspan(n), i, columns);
      mean.sum += static_cast<double>(code) - field;
      ++mean.codes;
    }
  }
}

// "0.15.1" and everything below 0.16; false for any text that does not begin with a version.
bool IsBefore16(const std::string& version) {
  if (!version.starts_with("0.")) return false;
  const std::string minor = version.substr(2, version.find_first_not_of("0123456789", 2) - 2);
  return minor.size() == 1 || (minor.size() == 2 && minor < "16");
}

}  // namespace

bool IsOldModelFree(const Checkpoint& source) {
  const Json* model_free = SecondConfigField(source, "model_free");
  const Json* packing = SecondConfigField(source, "packing_format");
  if (model_free == nullptr || *model_free != true || packing == nullptr ||
      *packing != "auto_round") {
    return false;
  }
  std::vector<std::string> modules;
  for (const StoredTensor& tensor : source.tensors()) {
    if (!tensor.name.ends_with(kZeros)) continue;
    modules.emplace_back(tensor.name.substr(0, tensor.name.size() - kZeros.size()));
  }
  Mean mean;
  const uint64_t step = std::max<uint64_t>(1, modules.size() / kMaxModules);
  for (uint64_t i = 0; i < modules.size(); i += step) AddModule(source, modules[i], mean);
  if (mean.IsNear(1)) return true;
  if (mean.IsNear(0)) return false;
  const Json* version = SecondConfigField(source, "autoround_version");
  return version != nullptr && version->is_string() && IsBefore16(version->get<std::string>());
}

}  // namespace prepack
