#include "verify/second_model_free.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/checked.h"
#include "verify/second_config.h"
#include "verify/second_fields.h"
#include "verify/second_tensors.h"

namespace prepack {
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

// Adds the codes of one module's first group; those of a module that does not lend itself to it, or
// that cannot be read, are left out.
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
  // As many at either end, whichever of the two is stored.
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

// "0.15.1" and everything below 0.16; not a text that begins otherwise.
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
    modules.push_back(tensor.name.substr(0, tensor.name.size() - kZeros.size()));
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
