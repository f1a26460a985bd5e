#include "formats/tgi_config.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "formats/finding.h"
#include "formats/row_checks.h"

namespace prepack {

namespace {

bool IsNumber(DType dtype) {
  return dtype == DType::kI64 || dtype == DType::kI32 || dtype == DType::kBool;
}

// The number in a tensor of one integer; nullopt when there is none.
Result<std::optional<int64_t>> ReadScalar(const Checkpoint& checkpoint, std::string_view name) {
  const StoredTensor* tensor = checkpoint.Find(name);
  std::array<std::byte, 8> buffer{};
  if (tensor == nullptr || ElementCount(*tensor) != 1 || !IsNumber(tensor->dtype)) {
    return std::optional<int64_t>();
  }
  const auto bytes = std::span(buffer).first(static_cast<size_t>(tensor->bytes));
  Status status = checkpoint.Read(*tensor, 0, bytes);
  if (!status.ok()) return status;
  return std::optional(LoadLittleInt(bytes));
}

}  // namespace

Status RefuseTgiConfig(const Checkpoint& checkpoint) {
  const StoredTensor* tensor = checkpoint.Find("gptq_bits");
  if (tensor == nullptr) tensor = checkpoint.Find("gptq_groupsize");
  if (tensor == nullptr) return {};
  const Result<std::optional<int64_t>> bits = ReadScalar(checkpoint, "gptq_bits");
  if (!bits.ok()) return bits.status();
  const Result<std::optional<int64_t>> size = ReadScalar(checkpoint, "gptq_groupsize");
  if (!size.ok()) return size.status();
  const Result<std::optional<int64_t>> symmetric = ReadScalar(checkpoint, "gptq_sym");
  if (!symmetric.ok()) return symmetric.status();
  return Unsupported(checkpoint.Where(*tensor),
                     "the settings of the quantizer stand only in tensors, as "
                     "text-generation-inference wrote them")
      .Expected("a quantization_config in config.json")
      .Hint(fmt::format("Add it: \"quantization_config\": {{\"quant_method\": \"gptq\", \"bits\": "
                        "{}, \"group_size\": {}, \"sym\": {}, \"desc_act\": false}}",
                        bits->value_or(4), size->value_or(128),
                        symmetric->value_or(0) != 0 ? "true" : "false"))
      .Id(FindingId("config-in-tensors"));
}

}  // namespace prepack
