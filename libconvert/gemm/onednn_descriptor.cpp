// Asks oneDNN's matmul primitive in which form it wants its weights. Mirrors vLLM 0.32.0:
// csrc/cpu/dnnl_helper.cpp, W8A8MatMulPrimitiveHandler.

#include "gemm/onednn_descriptor.h"

#include <fmt/format.h>

#include <dnnl.hpp>
#include <exception>

#include "gemm/onednn_failure.h"
#include "gemm/onednn_module.h"
#include "gemm/onednn_query.h"
#include "gemm/onednn_runtime.h"

namespace prepack {
namespace {

using dnnl::memory;

constexpr int kPerTensor = 0;
constexpr int kPerOutputChannel = 2;
constexpr std::string_view kOtherForms =
    "--onednn-form blocked and --onednn-form plain write a form without asking oneDNN";

// Sums go to vLLM's own code as f32 when it applies the scales of the activations itself.
memory::data_type ResultType(const PackRequest& request) {
  if (request.scheme.activations.dynamic) return memory::data_type::f32;
  switch (request.activation_dtype) {
    case DType::kBF16:
      return memory::data_type::bf16;
    case DType::kF16:
      return memory::data_type::f16;
    default:
      return memory::data_type::f32;
  }
}

OneDnnFields Ask(const dnnl::engine& engine, const PackRequest& request, bool zero_points) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_scales_mask(DNNL_ARG_WEIGHTS, kPerOutputChannel);
  if (!request.scheme.activations.dynamic) attributes.set_scales_mask(DNNL_ARG_SRC, kPerTensor);
  if (zero_points) attributes.set_zero_points_mask(DNNL_ARG_SRC, kPerTensor);
  const auto m = static_cast<memory::dim>(kOneDnnProbeRows);
  const auto n = static_cast<memory::dim>(request.n);
  const auto k = static_cast<memory::dim>(request.k);
  const dnnl::matmul::primitive_desc primitive(
      engine, memory::desc({m, k}, memory::data_type::s8, memory::format_tag::ab),
      memory::desc({k, n}, memory::data_type::s8, memory::format_tag::any),
      memory::desc({m, n}, ResultType(request), memory::format_tag::ab), attributes);
  OneDnnFields fields = FieldsOf(primitive.weights_desc());
  fields.implementation = primitive.impl_info_str();
  return fields;
}

OneDnnOrigin OriginOf(const OneDnnFields& fields) {
  const dnnl_version_t& version = *dnnl_version();
  return {.version = fmt::format("{}.{}.{}", version.major, version.minor, version.patch),
          .hash = version.hash,
          .isa = fmt::format("{:#x}", static_cast<unsigned>(dnnl_get_effective_cpu_isa())),
          .implementation = fields.implementation};
}

Result<OneDnnAnswer> AskOrThrow(const PackRequest& request) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const ActivationScheme& activations = request.scheme.activations;
  const bool zero_points = !activations.dynamic && !activations.symmetric;
  const OneDnnFields fields = Ask(engine, request, zero_points);
  const Result<BlockedDesc> desc =
      zero_points ? WeightsDescOf(fields, Ask(engine, request, false), request.k, request.n)
                  : WeightsDescOf(fields, request.k, request.n);
  if (!desc.ok()) return desc.status();
  return OneDnnAnswer{.weights_desc = *desc, .origin = OriginOf(fields)};
}

}  // namespace
}  // namespace prepack

void PREPACK_ONEDNN_DESCRIPTOR_ENTRY(const prepack::PackRequest& request,
                                     prepack::Result<prepack::OneDnnAnswer>& answer) {
  prepack::PrepareOneDnnRuntime();
  try {
    answer = prepack::AskOrThrow(request);
  } catch (const std::exception&) {
    answer = prepack::CurrentOneDnnFailure(prepack::kOtherForms);
  }
}
