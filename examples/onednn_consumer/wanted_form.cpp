#include "wanted_form.h"

#include "refusal.h"

namespace {

using dnnl::memory;

std::array<uint64_t, 2> Pair(const memory::dims& values) {
  return {static_cast<uint64_t>(values.at(0)), static_cast<uint64_t>(values.at(1))};
}

void CheckIsBlocked(const memory::desc& desc) {
  if (desc.get_format_kind() == memory::format_kind::blocked) return;
  throw Refusal(Exit::kUnavailable, "oneDNN wants weights in a form that plain fields cannot say");
}

// How many rows of sums, i32 [padded N], lie behind the elements.
uint64_t RowsOfSums(const memory::desc& desc) {
  const auto [k, n] = Pair(desc.get_padded_dims());
  const bool four_bits = desc.get_data_type() != memory::data_type::s8;
  return (desc.get_size() - k * n / (four_bits ? 2 : 1)) / (n * sizeof(int32_t));
}

}  // namespace

WeightsForm WantedForm(const memory::desc& wanted, const memory::desc& without_zero_points) {
  CheckIsBlocked(wanted);
  CheckIsBlocked(without_zero_points);
  WeightsForm form{.dims = Pair(wanted.get_dims()),
                   .padded_dims = Pair(wanted.get_padded_dims()),
                   .strides = Pair(wanted.get_strides()),
                   .inner = {}};
  const memory::dims sizes = wanted.get_inner_blks();
  const memory::dims dims = wanted.get_inner_idxs();
  for (size_t i = 0; i < sizes.size(); ++i) form.inner.push_back(Pair({dims[i], sizes[i]}));
  form.s8s8_compensation = RowsOfSums(without_zero_points) > 0;
  form.zero_point_compensation = RowsOfSums(wanted) > RowsOfSums(without_zero_points);
  return form;
}
