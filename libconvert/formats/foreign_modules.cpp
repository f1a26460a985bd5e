#include "formats/foreign_modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>

namespace prepack {

namespace {

// Tensors that only quantized modules have: their codes, and what belongs to codes.
constexpr std::array<std::string_view, 2> kCodes = {"qweight", "weight_packed"};
constexpr std::array<std::string_view, 4> kForeignSuffixes = {
    "qzeros", "weight_scale", "weight_scale_inv", "weight_zero_point"};

bool IsCode(DType dtype) {
  switch (dtype) {
    case DType::kI8:
    case DType::kU8:
    case DType::kI32:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kF8E4M3Fnuz:
    case DType::kF8E5M2Fnuz:
    case DType::kF4:
      return true;
    default:
      return false;
  }
}

// The tensor that shows that a module is quantized, or nullptr. Codes that nobody reads come first:
// two formats may have left theirs.
const StoredTensor* Evidence(const ModuleTensors& module, const std::set<std::string_view>& read) {
  const StoredTensor* codes = nullptr;
  for (const std::string_view suffix : kCodes) {
    const StoredTensor* tensor = module.Find(suffix);
    if (tensor != nullptr && (codes == nullptr || !read.contains(tensor->name))) codes = tensor;
  }
  if (codes != nullptr) return codes;
  for (const std::string_view suffix : kForeignSuffixes) {
    if (const StoredTensor* tensor = module.Find(suffix)) return tensor;
  }
  // Experts that are fused into one tensor keep their names: "gate_up_proj_scale_inv".
  for (const auto& [suffix, tensor] : module.tensors) {
    if (suffix.ends_with("_scale_inv") || suffix.ends_with("_packed")) return tensor;
  }
  const StoredTensor* weight = module.Find("weight");
  return weight != nullptr && weight->shape.size() >= 2 && IsCode(weight->dtype) ? weight : nullptr;
}

}  // namespace

void ReportForeignModules(const Checkpoint& checkpoint, const std::vector<ModuleTensors>& modules,
                          QuantizedModel& model) {
  // So many errors say enough; below, each module is looked up in them.
  constexpr size_t kMaxErrors = 1000;
  if (model.errors.size() > kMaxErrors) return;
  std::set<std::string_view> used;  // tensors
  for (const auto& linear : model.modules) {
    used.insert(linear->source_tensors().begin(), linear->source_tensors().end());
  }
  for (const ModuleTensors& module : modules) {
    const StoredTensor* tensor = Evidence(module, used);
    if (tensor == nullptr || used.contains(tensor->name)) continue;
    const bool reported = std::ranges::any_of(model.errors, [&](const Status& error) {
      return error.where().find(module.name) != std::string::npos;
    });
    if (reported) continue;
    model.errors.push_back(
        Malformed(checkpoint.Where(*tensor),
                  fmt::format("the module is quantized, but not as {} stores it", model.format))
            .Found(fmt::format("{} {}", DTypeName(tensor->dtype), ShowShape(tensor->shape)))
            .Hint("Is the folder a mix of two checkpoints, or half converted?")
            .Id(FindingId("module-foreign")));
  }
}

}  // namespace prepack
