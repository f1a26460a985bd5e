#include "prepack/gemm/onednn/query.h"

#include <dlfcn.h>
#include <dnnl.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>

namespace prepack {
namespace {

// The driver that lies beside the oneDNN that this process has loaded; empty if there is none,
// as with a oneDNN of the system, which needs none.
std::filesystem::path DriverBesideOneDnn() {
  Dl_info info{};
  const auto* const symbol = reinterpret_cast<const void*>(&dnnl_version);
  if (dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code ignored;
  const std::filesystem::path driver =
      std::filesystem::absolute(info.dli_fname, ignored).parent_path() / "libintelocl.so";
  return std::filesystem::exists(driver, ignored) ? driver : std::filesystem::path();
}

}  // namespace

void PrepareOneDnnRuntime() {
  static std::once_flag once;
  std::call_once(once, [] {
    const std::filesystem::path driver = DriverBesideOneDnn();
    if (driver.empty()) return;
    // The value stays for the life of the process; other threads must not read the environment
    // while the first engine is made.
    setenv("OCL_ICD_FILENAMES", driver.c_str(), 0);  // NOLINT(concurrency-mt-unsafe)
  });
}

namespace {

using dnnl::memory;

constexpr int kPerTensor = 0;
constexpr int kPerOutputChannel = 2;

}  // namespace

OneDnnFields FieldsOf(const memory::desc& desc) {
  OneDnnFields fields;
  fields.blocked = desc.get_format_kind() == memory::format_kind::blocked;
  fields.s8 = desc.get_data_type() == memory::data_type::s8;
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

dnnl::matmul::primitive_desc DescribeW8A8(const dnnl::engine& engine, const PackRequest& request,
                                          const W8A8Form& form) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_scales_mask(DNNL_ARG_WEIGHTS, kPerOutputChannel);
  if (!request.scheme.activations.dynamic) attributes.set_scales_mask(DNNL_ARG_SRC, kPerTensor);
  if (form.zero_points) attributes.set_zero_points_mask(DNNL_ARG_SRC, kPerTensor);
  const memory::desc x({Dim(form.m), Dim(request.k)}, memory::data_type::s8,
                       memory::format_tag::ab);
  const memory::desc y({Dim(form.m), Dim(request.n)}, form.result, memory::format_tag::ab);
  if (!form.bias) return {engine, x, form.weights, y, attributes};
  const memory::desc bias({1, Dim(request.n)}, *form.bias, memory::format_tag::ab);
  return {engine, x, form.weights, bias, y, attributes};
}

memory::desc AnyW8A8Weights(const PackRequest& request) {
  return {{Dim(request.k), Dim(request.n)}, memory::data_type::s8, memory::format_tag::any};
}

memory::data_type W8A8ResultType(const PackRequest& request) {
  return request.scheme.activations.dynamic ? memory::data_type::f32
                                            : TypeOf(request.activation_dtype);
}

memory::data_type TypeOf(DType dtype) {
  if (dtype == DType::kBF16) return memory::data_type::bf16;
  return dtype == DType::kF16 ? memory::data_type::f16 : memory::data_type::f32;
}

bool HasStaticZeroPoint(const PackRequest& request) {
  return !request.scheme.activations.dynamic && !request.scheme.activations.symmetric;
}

}  // namespace prepack
