#include "gemm/onednn_query.h"

namespace prepack {

OneDnnFields FieldsOf(const dnnl::memory::desc& desc) {
  OneDnnFields fields;
  fields.blocked = desc.get_format_kind() == dnnl::memory::format_kind::blocked;
  fields.s8 = desc.get_data_type() == dnnl::memory::data_type::s8;
  fields.dims = desc.get_dims();
  fields.bytes = desc.get_size();
  if (!fields.blocked) return fields;  // has none of the others
  fields.offset = desc.get_submemory_offset();
  fields.padded_dims = desc.get_padded_dims();
  fields.strides = desc.get_strides();
  fields.inner_sizes = desc.get_inner_blks();
  fields.inner_dims = desc.get_inner_idxs();
  return fields;
}

}  // namespace prepack
