#include "verify/second_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace prepack {
namespace {

bool IsDeclaration(const std::string& key) {
  return key == "quantization_config" || key == "compression_config";
}

// Some writers wrapped the declaration once more.
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

}  // namespace prepack
