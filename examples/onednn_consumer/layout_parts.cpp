#include "layout_parts.h"

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "refusal.h"

namespace {

struct Expected {
  std::string dtype;
  std::vector<uint64_t> shape;
  bool optional = false;
};
using ExpectedParts = std::map<std::string, Expected>;

uint64_t BytesOf(const std::string& dtype) {
  if (dtype == "U8") return 1;
  return dtype == "F16" || dtype == "BF16" ? 2 : 4;  // F32, I32: no layout has others
}

// Elements, then the rows of sums that follow them.
uint64_t BytesOfForm(const WeightsForm& form) {
  const uint64_t rows = (form.s8s8_compensation ? 1 : 0) + (form.zero_point_compensation ? 1 : 0);
  return form.padded_dims[1] * (form.padded_dims[0] + rows * sizeof(int32_t));
}

ExpectedParts PartsOf4Bit(const Module& module) {
  const uint64_t groups = module.k / module.group_size;
  ExpectedParts parts = {{"weight", {"U8", {module.k, module.n / 2}}},
                         {"weight_scale", {"F32", {groups, module.n}}}};
  if (!module.symmetric) parts["weight_zero_point"] = {"U8", {groups, module.n / 2}};
  return parts;
}

ExpectedParts PartsOfW8A8(const Module& module) {
  ExpectedParts parts = {{"weight", {"U8", {BytesOfForm(module.form)}}},
                         {"weight_scale", {"F32", {module.n}}}};
  if (!module.activations.symmetric) parts["weight_sum"] = {"F32", {module.n}};
  if (module.activations.dynamic) return parts;
  parts["input_scale"] = {"F32", {1}};
  if (!module.activations.symmetric) parts["input_zero_point"] = {"I32", {1}};
  return parts;
}

std::string Describe(const std::string& dtype, const std::vector<uint64_t>& shape) {
  return nlohmann::json(dtype).dump() + " " + nlohmann::json(shape).dump();
}

}  // namespace

void CheckParts(Module& module, const std::string& where, const std::string& activation_dtype) {
  const bool w8a8 = !module.Is4Bit();
  const bool quantized = w8a8 || module.layout == "onednn/w4a8";
  if ((module.layout != "onednn/w4a16" && !quantized) ||
      quantized != module.activations.quantized ||
      (w8a8 ? module.group_size != module.k : module.n % 2 != 0)) {
    throw Malformed(where, "layout " + nlohmann::json(module.layout).dump() +
                               " does not go with the other fields");
  }
  ExpectedParts expected = w8a8 ? PartsOfW8A8(module) : PartsOf4Bit(module);
  expected["bias"] = {activation_dtype, {module.n}, /*optional=*/true};
  expected["input_order"] = {"I32", {module.k}, /*optional=*/true};
  for (const auto& [name, wanted] : expected) {
    const auto part = module.parts.find(name);
    if (part == module.parts.end()) {
      if (wanted.optional) continue;
      throw Malformed(where, "part \"" + name + "\" is missing");
    }
    if (part->second.dtype != wanted.dtype || part->second.shape != wanted.shape) {
      throw Malformed(where, "part \"" + name + "\" is not as its layout says (found " +
                                 Describe(part->second.dtype, part->second.shape) + ", expected " +
                                 Describe(wanted.dtype, wanted.shape) + ")");
    }
    part->second.bytes = BytesOf(wanted.dtype);
    for (const uint64_t size : wanted.shape) part->second.bytes *= size;
  }
}
