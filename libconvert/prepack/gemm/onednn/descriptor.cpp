// Asks oneDNN's matmul primitive in which form it wants its weights. Mirrors vLLM 0.32.0:
// csrc/cpu/dnnl_helper.cpp, W8A8MatMulPrimitiveHandler.

#include "prepack/gemm/onednn/descriptor.h"

#include <fmt/format.h>

#include <dnnl.hpp>
#include <exception>

#include "prepack/base/status.h"
#include "prepack/gemm/onednn/engine.h"
#include "prepack/gemm/onednn/query.h"

namespace prepack {
namespace {

constexpr std::string_view kOtherForms =
    "--onednn-form blocked and --onednn-form plain write a form without asking oneDNN";

OneDnnFields Ask(const dnnl::engine& engine, const PackRequest& request, bool zero_points) {
  const dnnl::matmul::primitive_desc primitive = DescribeW8A8(engine, request,
                                                              {.m = kOneDnnProbeRows,
                                                               .weights = AnyW8A8Weights(request),
                                                               .result = W8A8ResultType(request),
                                                               .zero_points = zero_points});
  OneDnnFields fields = FieldsOf(primitive.weights_desc());
  fields.implementation = primitive.impl_info_str();
  return fields;
}

OneDnnOrigin OriginOf(const std::string& implementation) {
  const dnnl_version_t& version = *dnnl_version();
  return {.version = fmt::format("{}.{}.{}", version.major, version.minor, version.patch),
          .hash = version.hash,
          .isa = fmt::format("{:#x}", static_cast<unsigned>(dnnl_get_effective_cpu_isa())),
          .implementation = implementation};
}

}  // namespace

Result<BlockedDesc> WantedW8A8Weights(const dnnl::engine& engine, const PackRequest& request,
                                      std::string& implementation) {
  const bool zero_points = HasStaticZeroPoint(request);
  const OneDnnFields fields = Ask(engine, request, zero_points);
  implementation = fields.implementation;
  if (!zero_points) return WeightsDescOf(fields, request.k, request.n);
  return WeightsDescOf(fields, Ask(engine, request, false), request.k, request.n);
}

namespace {

Result<OneDnnAnswer> AskOrThrow(const PackRequest& request) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  std::string implementation;
  PREPACK_TRY_ASSIGN(const BlockedDesc desc, WantedW8A8Weights(engine, request, implementation));
  return OneDnnAnswer{.weights_desc = desc, .origin = OriginOf(implementation)};
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
