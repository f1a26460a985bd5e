#include "weights_form.h"

#include "refusal.h"

namespace {

constexpr uint64_t kLargestBlock = 4096;  // far above any kernel's

std::array<uint64_t, 2> Pair(const std::vector<uint64_t>& values, const std::string& where,
                             const char* key) {
  if (values.size() == 2) return {values[0], values[1]};
  throw Malformed(where, std::string("field \"") + key + "\" is no pair");
}

uint64_t BlockOf(const WeightsForm& form, uint64_t dim) {
  uint64_t block = 1;
  for (const auto& [inner_dim, size] : form.inner) block *= inner_dim == dim ? size : 1;
  return block;
}

// Whether the blocks are small enough to be multiplied, and pad the matrix as they must.
bool IsSound(const WeightsForm& form) {
  uint64_t product = 1;
  for (const auto& [dim, size] : form.inner) {
    if (dim > 1 || size == 0 || size > kLargestBlock) return false;
    product *= size;
    if (product > kLargestBlock * kLargestBlock) return false;
  }
  for (size_t dim = 0; dim < form.dims.size(); ++dim) {
    const uint64_t block = BlockOf(form, dim);
    if (form.padded_dims[dim] != (form.dims[dim] + block - 1) / block * block) return false;
  }
  return true;
}

std::string ToText(const std::array<uint64_t, 2>& pair) {
  return nlohmann::json(pair).dump();
}

}  // namespace

uint64_t WeightsForm::Element(uint64_t n, uint64_t k) const {
  const std::array<uint64_t, 2> blocks = {BlockOf(*this, 0), BlockOf(*this, 1)};
  std::array<uint64_t, 2> rest = {k % blocks[0], n % blocks[1]};
  uint64_t place = strides[0] * (k / blocks[0]) + strides[1] * (n / blocks[1]);
  uint64_t stride = 1;
  for (auto block = inner.rbegin(); block != inner.rend(); ++block) {
    const auto [dim, size] = *block;
    place += rest[dim] % size * stride;
    rest[dim] /= size;
    stride *= size;
  }
  return place;
}

std::string WeightsForm::ToString() const {
  return "dims " + ToText(dims) + ", padded " + ToText(padded_dims) + ", strides " +
         ToText(strides) + ", inner blocks " + nlohmann::json(inner).dump() +
         (s8s8_compensation ? ", sums for s8" : "") +
         (zero_point_compensation ? ", sums for zero points" : "");
}

WeightsForm PlainForm(uint64_t n, uint64_t k) {
  return {.dims = {k, n}, .padded_dims = {k, n}, .strides = {n, 1}, .inner = {}};
}

WeightsForm StoredForm(const Fields& descriptor, uint64_t n, uint64_t k) {
  const std::string& where = descriptor.where();
  WeightsForm form{.dims = Pair(descriptor.Uints("dims"), where, "dims"),
                   .padded_dims = Pair(descriptor.Uints("padded_dims"), where, "padded_dims"),
                   .strides = Pair(descriptor.Uints("strides"), where, "strides"),
                   .inner = {},
                   .s8s8_compensation = descriptor.Bool("s8s8_compensation"),
                   .zero_point_compensation = descriptor.Bool("zero_point_compensation")};
  for (const std::vector<uint64_t>& block : descriptor.UintLists("inner_blocks")) {
    form.inner.push_back(Pair(block, where, "inner_blocks"));
  }
  if (form.dims != std::array{k, n} || !IsSound(form)) {
    throw Malformed(where, "it is no descriptor of the module's weights (found " + form.ToString() +
                               ", expected dims " + ToText({k, n}) + ")");
  }
  return form;
}
