// W4A16 on oneDNN's matmul primitive (oneDNN 3.8 or newer).
//
// Weights are given as [K, N] with strides (1, K), format tag `ba`: exactly our row-major nibbles
// [N, K/2], so oneDNN reads the codes where they lie. Codes are u4 with u8 zero points: symmetric
// weights get the zero point 8 throughout, because for s4 every code would have to be rewritten.
// Scales are f32 [G, N] with mask 3 and groups {group_size, 1}; f32, because bf16 scales fall back
// to oneDNN's reference implementation on CPUs without AVX-512.
//
// Groups that oneDNN does not take (3.13: those that are no multiple of 16 and not the whole of K)
// are multiplied with the weights widened to f32, and the report says so.

#include <fmt/format.h>

#include <algorithm>
#include <dnnl.hpp>
#include <exception>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/float_convert.h"
#include "canonical/panel.h"
#include "gemm/engine.h"
#include "gemm/onednn_failure.h"
#include "gemm/onednn_module.h"
#include "gemm/onednn_runtime.h"

namespace prepack {
namespace {

using dnnl::memory;

constexpr int kWeightMask = 3;  // scales and zero points vary along both dimensions of the weights
memory::dim Dim(uint64_t value) {
  return static_cast<memory::dim>(value);
}

// oneDNN takes pointers without const; it does not write to inputs.
template <typename T>
void* Pointer(std::span<const T> data) {
  return const_cast<void*>(static_cast<const void*>(data.data()));
}

// [N, G] → [G, N].
template <typename T>
std::vector<T> Transposed(std::span<const T> values, uint64_t n, uint64_t groups) {
  std::vector<T> out(values.size());
  for (uint64_t row = 0; row < n; ++row) {
    for (uint64_t g = 0; g < groups; ++g) out[g * n + row] = values[row * groups + g];
  }
  return out;
}

// weights[k] = (code − zero point) · scale in f32, for output channel n of the problem.
void WidenChannel(const W4A16Problem& problem, uint64_t n, std::span<float> weights) {
  const uint64_t groups = problem.k / problem.group_size;
  for (uint64_t k = 0; k < problem.k; ++k) {
    const uint64_t group = n * groups + k / problem.group_size;
    const int zero_point = problem.zero_points.empty() ? 8 : problem.zero_points[group];
    const int code = PanelCode(CodeType::kU4, problem.codes, problem.k, n, k);
    weights[k] = static_cast<float>(code - zero_point) * problem.scales[group];
  }
}

constexpr std::string_view kOtherEngine = "--engine reference multiplies without oneDNN";

class OneDnnEngine final : public GemmEngine {
 public:
  OneDnnEngine() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  std::string name() const override {
    const dnnl_version_t* version = dnnl_version();
    return fmt::format("onednn {}.{}.{}", version->major, version->minor, version->patch);
  }

  Result<GemmInfo> Run(const W4A16Problem& problem, std::span<float> y) override {
    Status status = CheckProblem(problem, y);
    if (!status.ok()) return status;
    try {
      return RunOrThrow(problem, y);
    } catch (const std::exception&) {
      return CurrentOneDnnFailure(kOtherEngine);
    }
  }

 private:
  // The primitive for activations of `type`, if there is one on this CPU. Describing a shape again
  // costs microseconds: oneDNN keeps the kernels that it has generated.
  std::optional<dnnl::matmul::primitive_desc> Describe(const W4A16Problem& problem,
                                                       memory::data_type type) const;
  GemmInfo RunOrThrow(const W4A16Problem& problem, std::span<float> y);
  GemmInfo RunWidened(const W4A16Problem& problem, std::span<float> y);
  void Execute(const dnnl::matmul::primitive_desc& description,
               const std::unordered_map<int, memory>& arguments, std::span<float> y);

  dnnl::engine engine_;
  dnnl::stream stream_;
};

std::optional<dnnl::matmul::primitive_desc> OneDnnEngine::Describe(const W4A16Problem& problem,
                                                                   memory::data_type type) const {
  const memory::dims groups = {Dim(problem.group_size), 1};
  dnnl::primitive_attr attributes;
  attributes.set_scales(DNNL_ARG_WEIGHTS, kWeightMask, groups, memory::data_type::f32);
  attributes.set_zero_points(DNNL_ARG_WEIGHTS, kWeightMask, groups, memory::data_type::u8);
  const bool bf16 = type == memory::data_type::bf16;
  attributes.set_fpmath_mode(bf16 ? dnnl::fpmath_mode::bf16 : dnnl::fpmath_mode::strict, true);
  const memory::desc x({Dim(problem.m), Dim(problem.k)}, type, memory::format_tag::ab);
  const memory::desc w({Dim(problem.k), Dim(problem.n)}, memory::data_type::u4,
                       memory::format_tag::ba);
  const memory::desc y({Dim(problem.m), Dim(problem.n)}, memory::data_type::f32,
                       memory::format_tag::ab);
  dnnl::matmul::primitive_desc description(engine_, x, w, y, attributes, /*allow_empty=*/true);
  if (!description) return std::nullopt;
  return description;
}

GemmInfo OneDnnEngine::RunOrThrow(const W4A16Problem& problem, std::span<float> y) {
  GemmInfo info{.implementation = "", .rounds_weights_to_bf16 = true, .activation_type = "bf16"};
  std::optional<dnnl::matmul::primitive_desc> description =
      Describe(problem, memory::data_type::bf16);
  std::vector<uint16_t> x_bf16;
  void* x = Pointer(problem.x);
  if (description) {
    x_bf16.resize(problem.x.size());
    std::transform(problem.x.begin(), problem.x.end(), x_bf16.begin(), F32ToBF16);
    x = x_bf16.data();
  } else {
    // No bf16 kernel on this CPU: the same bf16 values, multiplied in f32.
    description = Describe(problem, memory::data_type::f32);
    info.rounds_weights_to_bf16 = false;
    info.activation_type = "f32 (bf16 values)";
  }
  if (!description) return RunWidened(problem, y);
  info.implementation = description->impl_info_str();

  const uint64_t groups = problem.k / problem.group_size;
  std::vector<float> scales = Transposed(problem.scales, problem.n, groups);
  std::vector<uint8_t> zero_points(scales.size(), 8);
  if (!problem.zero_points.empty()) {
    zero_points = Transposed(problem.zero_points, problem.n, groups);
  }
  const memory::dims parameter_dims = {Dim(groups), Dim(problem.n)};
  const memory::desc scale_desc(parameter_dims, memory::data_type::f32, memory::format_tag::ab);
  const memory::desc zero_desc(parameter_dims, memory::data_type::u8, memory::format_tag::ab);
  const std::unordered_map<int, memory> arguments = {
      {DNNL_ARG_SRC, memory(description->src_desc(), engine_, x)},
      {DNNL_ARG_WEIGHTS, memory(description->weights_desc(), engine_, Pointer(problem.codes))},
      {DNNL_ARG_DST, memory(description->dst_desc(), engine_, y.data())},
      {DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS, memory(scale_desc, engine_, scales.data())},
      {DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_WEIGHTS,
       memory(zero_desc, engine_, zero_points.data())},
  };
  Execute(*description, arguments, y);
  return info;
}

GemmInfo OneDnnEngine::RunWidened(const W4A16Problem& problem, std::span<float> y) {
  std::vector<float> weights(problem.n * problem.k);
  for (uint64_t n = 0; n < problem.n; ++n) {
    WidenChannel(problem, n, std::span(weights).subspan(n * problem.k, problem.k));
  }
  const auto f32 = [](uint64_t rows, uint64_t columns, memory::format_tag tag) {
    return memory::desc({Dim(rows), Dim(columns)}, memory::data_type::f32, tag);
  };
  const dnnl::matmul::primitive_desc description(engine_,
                                                 f32(problem.m, problem.k, memory::format_tag::ab),
                                                 f32(problem.k, problem.n, memory::format_tag::ba),
                                                 f32(problem.m, problem.n, memory::format_tag::ab));
  Execute(description,
          {{DNNL_ARG_SRC, memory(description.src_desc(), engine_, Pointer(problem.x))},
           {DNNL_ARG_WEIGHTS, memory(description.weights_desc(), engine_, weights.data())},
           {DNNL_ARG_DST, memory(description.dst_desc(), engine_, y.data())}},
          y);
  return {.implementation = fmt::format("{}, weights as f32", description.impl_info_str()),
          .rounds_weights_to_bf16 = false,
          .activation_type = "f32 (bf16 values)"};
}

void OneDnnEngine::Execute(const dnnl::matmul::primitive_desc& description,
                           const std::unordered_map<int, memory>& arguments, std::span<float> y) {
  dnnl::matmul(description).execute(stream_, arguments);
  stream_.wait();
  for (float& value : y) value = BF16ToF32(F32ToBF16(value));
}

}  // namespace

}  // namespace prepack

void PREPACK_ONEDNN_ENGINE_ENTRY(prepack::Result<std::unique_ptr<prepack::GemmEngine>>& engine) {
  prepack::PrepareOneDnnRuntime();
  try {
    engine = std::unique_ptr<prepack::GemmEngine>(std::make_unique<prepack::OneDnnEngine>());
  } catch (const std::exception&) {
    engine = prepack::CurrentOneDnnFailure(prepack::kOtherEngine);
  }
}
