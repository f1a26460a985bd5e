// How each layout is given to the primitive (oneDNN 3.7 or newer):
//
//   w4a16  x bf16, weights s4 or u4 [K, N] `ab` with scales and u4 zero points [G, N] as packed,
//          fpmath_mode bf16 for integers. A CPU for which oneDNN has no such kernel, or only its
//          slow reference (AVX-512 without BF16), multiplies the same bf16 values in f32.
//   w4a8   x s8 with one scale per token, the same weights
//   plain  x bf16, weights bf16 [N, K] row-major; a CPU without such a kernel multiplies the same
//          values in f32. Only to be measured: `verify` leaves plain weights to the models
//   w8a8   x s8, weights in the stored descriptor, scales [N]; what vLLM's handler does to the
//          result itself (scales of tokens, zero points by weight_sum) is done here as well
//
// The primitives write f32; bias and the rounding to the type of y follow here, so that y is
// rounded once. With static activations of w8a8 the primitive does both, as in vLLM.

#include "prepack/gemm/onednn/packed.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "prepack/base/float_convert.h"
#include "prepack/base/status.h"
#include "prepack/gemm/activation_quantizers.h"
#include "prepack/gemm/model_operands.h"
#include "prepack/gemm/onednn/query.h"
#include "prepack/layouts/blocked_desc.h"

namespace prepack {
namespace {

using dnnl::memory;
using Type = memory::data_type;
using Tag = memory::format_tag;

constexpr int kBothDims = 3;  // scales and zero points vary along both dimensions

// oneDNN takes pointers without const; it does not write to inputs.
void* Pointer(std::span<const std::byte> bytes) {
  return const_cast<void*>(static_cast<const void*>(bytes.data()));
}
template <typename T>
void* Pointer(const std::vector<T>& values) {
  return const_cast<void*>(static_cast<const void*>(values.data()));
}

bool IsW8A8(const PackedProblem& problem) {
  return problem.request.scheme.code == CodeType::kS8;
}

bool IsPlain(const PackedProblem& problem) {
  return problem.request.scheme.code == CodeType::kBF16;
}

bool IsW4A8(const PackedProblem& problem) {
  return !IsW8A8(problem) && problem.request.scheme.activations.type == ActivationType::kInt;
}

memory::desc RowMajor(uint64_t rows, uint64_t columns, Type type) {
  return {{Dim(rows), Dim(columns)}, type, Tag::ab};
}

// --- W4A16 and W4A8

std::optional<dnnl::matmul::primitive_desc> DescribeW4(const dnnl::engine& engine,
                                                       const PackedProblem& problem, Type x) {
  const PackedOperands& packed = problem.packed;
  const bool symmetric = packed.zero_point.empty();
  const memory::dims groups = {Dim(packed.group_size), 1};
  dnnl::primitive_attr attributes;
  attributes.set_scales(DNNL_ARG_WEIGHTS, kBothDims, groups, TypeOf(packed.scale_dtype));
  if (!symmetric) attributes.set_zero_points(DNNL_ARG_WEIGHTS, kBothDims, groups, Type::u4);
  if (x == Type::s8) {
    attributes.set_scales(DNNL_ARG_SRC, kBothDims, {1, Dim(packed.k)}, Type::f32);
  } else {
    const bool bf16 = x == Type::bf16;
    attributes.set_fpmath_mode(bf16 ? dnnl::fpmath_mode::bf16 : dnnl::fpmath_mode::strict, true);
  }
  dnnl::matmul::primitive_desc primitive(
      engine, RowMajor(problem.input.m, packed.k, x),
      RowMajor(packed.k, packed.n, symmetric ? Type::s4 : Type::u4),
      RowMajor(problem.input.m, packed.n, Type::f32), attributes, /*allow_empty=*/true);
  if (!primitive) return std::nullopt;
  return primitive;
}

bool IsReference(const dnnl::matmul::primitive_desc& primitive) {
  return std::string_view(primitive.impl_info_str()).starts_with("ref");
}

Status NoMatmul(const PackedProblem& problem) {
  return Unavailable("oneDNN",
                     fmt::format("it has no matmul for {} on this machine", problem.layout))
      .Found(fmt::format("M = {}, N = {}, K = {}, groups of {}", problem.input.m, problem.packed.n,
                         problem.packed.k, problem.packed.group_size));
}

Result<PackedPlan> PlanW4(const dnnl::engine& engine, const PackedProblem& problem) {
  PackedPlan plan;
  std::optional<dnnl::matmul::primitive_desc> primitive;
  if (IsW4A8(problem)) {
    primitive = DescribeW4(engine, problem, Type::s8);
    plan.info.activation_type = "s8 per token";
  } else if ((primitive = DescribeW4(engine, problem, Type::bf16)) && !IsReference(*primitive)) {
    plan.info.activation_type = "bf16";
    plan.info.rounds_weights_to_bf16 = true;
  } else {
    primitive = DescribeW4(engine, problem, Type::f32);
    plan.info.activation_type = "f32 (bf16 values)";
  }
  if (!primitive) return NoMatmul(problem);
  plan.primitive = *primitive;
  return plan;
}

// --- bf16

std::optional<dnnl::matmul::primitive_desc> DescribePlain(const dnnl::engine& engine,
                                                          const PackedProblem& problem, Type x) {
  dnnl::primitive_attr attributes;
  attributes.set_fpmath_mode(dnnl::fpmath_mode::bf16);
  const memory::desc weights({Dim(problem.packed.k), Dim(problem.packed.n)}, Type::bf16, Tag::ba);
  dnnl::matmul::primitive_desc primitive(
      engine, RowMajor(problem.input.m, problem.packed.k, x), weights,
      RowMajor(problem.input.m, problem.packed.n, Type::f32), attributes, /*allow_empty=*/true);
  if (!primitive) return std::nullopt;
  return primitive;
}

Result<PackedPlan> PlanPlain(const dnnl::engine& engine, const PackedProblem& problem) {
  PackedPlan plan;
  plan.info.activation_type = "bf16";
  auto primitive = DescribePlain(engine, problem, Type::bf16);
  if (!primitive || IsReference(*primitive)) {
    primitive = DescribePlain(engine, problem, Type::f32);
    plan.info.activation_type = "f32 (bf16 values)";
  }
  if (!primitive) return NoMatmul(problem);
  plan.primitive = *primitive;
  return plan;
}

// --- W8A8

// A descriptor for messages: its name, and which sums follow.
std::string NameOf(const BlockedDesc& desc) {
  return fmt::format("{}{}{}", desc.Name(), desc.s8s8_compensation ? " with sums for s8" : "",
                     desc.zero_point_compensation ? " with sums for zero points" : "");
}

// With static activations the primitive adds the bias, and rounds.
bool AddsBias(const PackedProblem& problem) {
  return IsW8A8(problem) && !problem.request.scheme.activations.dynamic &&
         !problem.packed.bias.empty();
}

// CPUs without VNNI add pairs of int8 products in 16 bits, which saturate: 127 · 127 twice is too
// much for them. oneDNN documents it, and uses these instructions all the same.
constexpr uint64_t kProbeRows = 8;
constexpr uint64_t kProbeSize = 64;  // N and K

float SumOfLargestProducts(const dnnl::engine& engine) {
  const std::vector<int8_t> largest(kProbeSize * kProbeSize, 127);
  std::vector<float> sums(kProbeRows * kProbeSize);
  const dnnl::matmul::primitive_desc primitive(engine, RowMajor(kProbeRows, kProbeSize, Type::s8),
                                               RowMajor(kProbeSize, kProbeSize, Type::s8),
                                               RowMajor(kProbeRows, kProbeSize, Type::f32));
  dnnl::stream stream(engine);
  dnnl::matmul(primitive).execute(
      stream, {{DNNL_ARG_SRC, memory(primitive.src_desc(), engine, Pointer(largest))},
               {DNNL_ARG_WEIGHTS, memory(primitive.weights_desc(), engine, Pointer(largest))},
               {DNNL_ARG_DST, memory(primitive.dst_desc(), engine, sums.data())}});
  stream.wait();
  return *std::ranges::min_element(sums);
}

// OK when int8 products are summed exactly on this CPU.
Status CheckExactSums(const dnnl::engine& engine) {
  static const float found = SumOfLargestProducts(engine);
  constexpr float kExpected = kProbeSize * 127 * 127;
  if (found == kExpected) return {};
  return Unavailable("oneDNN",
                     "on this CPU its int8 matmul saturates at 16 bits and computes wrong sums "
                     "from correct weights")
      .Found(fmt::format("{} for {} times 127 * 127", found, kProbeSize))
      .Expected(fmt::format("{}", kExpected))
      .Hint("Serve int8 weights with oneDNN on CPUs with VNNI only");
}

Result<PackedPlan> PlanW8A8(const dnnl::engine& engine, const PackedProblem& problem) {
  const PackRequest& request = problem.request;
  PackedPlan plan;
  PREPACK_TRY_ASSIGN(const BlockedDesc wanted,
                     WantedW8A8Weights(engine, request, plan.info.implementation));
  const BlockedDesc packed = *request.weights_desc;
  plan.repacks = wanted != packed;
  if (plan.repacks && !problem.repack) {
    const dnnl_version_t& version = *dnnl_version();
    return Unsupported(fmt::format("oneDNN {}.{}.{}", version.major, version.minor, version.patch),
                       "on this CPU it wants another form of the weights than the packed one")
        .Found(NameOf(packed))
        .Expected(NameOf(wanted))
        .Hint("Convert again on this machine with --onednn-form native, or verify with --repack");
  }
  W8A8Form form{.m = kOneDnnProbeRows,
                .weights = AnyW8A8Weights(request),
                .result = W8A8ResultType(request),
                .zero_points = HasStaticZeroPoint(request)};
  // The form for the rows that it was packed for: with AMX the primitive likes another one for a
  // single row.
  form.weights = DescribeW8A8(engine, request, form).weights_desc();
  form.m = problem.input.m;
  if (AddsBias(problem)) form.bias = TypeOf(problem.packed.bias_dtype);
  plan.primitive = DescribeW8A8(engine, request, form);
  plan.info.activation_type = "s8";
  return plan;
}

QuantizedRows QuantizeW8A8(const PackedProblem& problem) {
  const ActivationScheme& activations = problem.request.scheme.activations;
  const PackedOperands& packed = problem.packed;
  if (!activations.dynamic) {
    return QuantizeStatic(problem.input.x, packed.k, packed.input_scale,
                          activations.symmetric ? 0 : packed.input_zero_point);
  }
  return activations.symmetric ? QuantizeDynamic(problem.input.x, packed.k)
                               : QuantizeDynamicAsymmetric(problem.input.x, packed.k);
}

// What vLLM's handler does to sums that the primitive has multiplied with the weights' scales.
void FinishDynamic(const PackedProblem& problem, const QuantizedRows& x, std::span<float> y) {
  const bool symmetric = problem.request.scheme.activations.symmetric;
  const uint64_t n = problem.packed.n;
  for (uint64_t i = 0; i < y.size(); ++i) {
    const float token_scale = x.scales[i / n];
    y[i] *= token_scale;
    if (symmetric) continue;
    const auto weight_sum = Load<float>(problem.packed.weight_sum, i % n);
    y[i] -= weight_sum * (token_scale * static_cast<float>(x.zero_points[i / n]));
  }
}

// The weights [K, N] row-major, out of their blocks.
std::vector<int8_t> PlainWeights(const PackedProblem& problem) {
  const BlockedDesc& desc = *problem.request.weights_desc;
  std::vector<int8_t> plain(problem.packed.k * problem.packed.n);
  for (uint64_t k = 0; k < problem.packed.k; ++k) {
    for (uint64_t n = 0; n < problem.packed.n; ++n) {
      plain[k * problem.packed.n + n] =
          static_cast<int8_t>(LoadS8(problem.packed.weight, desc.Element(k, n)));
    }
  }
  return plain;
}

memory Repacked(const dnnl::engine& engine, dnnl::stream& stream, const memory::desc& wanted,
                const PackedProblem& problem) {
  const std::vector<int8_t> plain = PlainWeights(problem);
  memory from(RowMajor(problem.packed.k, problem.packed.n, Type::s8), engine, Pointer(plain));
  memory to(wanted, engine);
  dnnl::reorder(from, to).execute(stream, from, to);
  stream.wait();
  return to;
}

// --- all

// The activations as the primitive takes them.
void* FeedOf(const PackedPlan& plan, const PackedProblem& problem, PackedExecution& execution) {
  const Type type = plan.primitive.src_desc().get_data_type();
  if (type == Type::s8) {
    execution.quantized = IsW8A8(problem) ? QuantizeW8A8(problem)
                                          : QuantizeDynamic(problem.input.x, problem.packed.k);
    const std::vector<int16_t>& values = execution.quantized.values;
    execution.s8.resize(values.size());
    std::ranges::transform(values, execution.s8.begin(),
                           [](int16_t value) { return static_cast<int8_t>(value); });
    return execution.s8.data();
  }
  if (type == Type::bf16) {
    execution.bf16.resize(problem.input.x.size());
    std::ranges::transform(problem.input.x, execution.bf16.begin(), F32ToBF16);
    return execution.bf16.data();
  }
  return const_cast<float*>(problem.input.x.data());
}

void AddW4Parameters(const dnnl::engine& engine, const PackedProblem& problem,
                     OneDnnArguments& arguments) {
  const PackedOperands& packed = problem.packed;
  const uint64_t groups = packed.k / packed.group_size;
  arguments[DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS] =
      memory(RowMajor(groups, packed.n, TypeOf(packed.scale_dtype)), engine, Pointer(packed.scale));
  if (!packed.zero_point.empty()) {
    arguments[DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_WEIGHTS] =
        memory(RowMajor(groups, packed.n, Type::u4), engine, Pointer(packed.zero_point));
  }
}

void AddW8A8Parameters(const dnnl::engine& engine, const PackedProblem& problem,
                       OneDnnArguments& arguments) {
  arguments[DNNL_ARG_ATTR_SCALES | DNNL_ARG_WEIGHTS] =
      memory({{Dim(problem.request.n)}, Type::f32, Tag::a}, engine, Pointer(problem.packed.scale));
}

// What goes with static activations.
void AddStaticArguments(const dnnl::engine& engine, const PackedProblem& problem,
                        PackedExecution& execution) {
  const PackRequest& request = problem.request;
  OneDnnArguments& arguments = execution.arguments;
  execution.input_scale = {problem.packed.input_scale};
  execution.input_zero_point = {problem.packed.input_zero_point};
  arguments[DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC] =
      memory({{1}, Type::f32, Tag::a}, engine, Pointer(execution.input_scale));
  if (AddsBias(problem)) {
    arguments[DNNL_ARG_BIAS] = memory(RowMajor(1, request.n, TypeOf(problem.packed.bias_dtype)),
                                      engine, Pointer(problem.packed.bias));
  }
  if (HasStaticZeroPoint(request)) {
    arguments[DNNL_ARG_ATTR_ZERO_POINTS | DNNL_ARG_SRC] =
        memory({{1}, Type::s32, Tag::a}, engine, Pointer(execution.input_zero_point));
  }
}

void AddBiasAndRound(const PackedProblem& problem, std::span<float> y) {
  const std::span<const std::byte> stored =
      AddsBias(problem) ? std::span<const std::byte>() : problem.packed.bias;
  const std::vector<float> bias = LoadFloats(problem.packed.bias_dtype, stored);
  for (uint64_t i = 0; i < y.size(); ++i) {
    y[i] = RoundTo(problem.input.dtype, y[i] + BiasOf(bias, i % problem.packed.n));
  }
}

DType ResultOf(const PackedPlan& plan) {
  const Type type = plan.primitive.dst_desc().get_data_type();
  if (type == Type::bf16) return DType::kBF16;
  return type == Type::f16 ? DType::kF16 : DType::kF32;
}

}  // namespace

Result<PackedPlan> PlanPacked(const dnnl::engine& engine, const PackedProblem& problem) {
  Result<PackedPlan> plan = IsPlain(problem)  ? PlanPlain(engine, problem)
                            : IsW8A8(problem) ? PlanW8A8(engine, problem)
                                              : PlanW4(engine, problem);
  if (!plan.ok()) return plan;
  plan->info.implementation = plan->primitive.impl_info_str();
  plan->info.is_reference = IsReference(plan->primitive);
  if (IsW8A8(problem) && !plan->info.is_reference) {
    PREPACK_TRY(CheckExactSums(engine));
  }
  return plan;
}

KnownPlans::Key::Key(const PackedProblem& problem)
    : request(problem.request),
      n(problem.packed.n),
      k(problem.packed.k),
      group_size(problem.packed.group_size),
      rows(problem.input.m),
      scale_dtype(problem.packed.scale_dtype),
      has_zero_points(!problem.packed.zero_point.empty()),
      repack(problem.repack) {
  if (!problem.packed.bias.empty()) bias_dtype = problem.packed.bias_dtype;
}

Result<PackedPlan> KnownPlans::PlanFor(const dnnl::engine& engine, const PackedProblem& problem) {
  constexpr size_t kMost = 128;
  const Key key(problem);
  const auto known = std::ranges::find(known_, key, &Known::key);
  if (known != known_.end()) return known->plan;
  PREPACK_TRY_ASSIGN(PackedPlan plan, PlanPacked(engine, problem));
  if (known_.size() == kMost) known_.pop_front();
  known_.push_back({.key = key, .plan = plan});
  return plan;
}

Status SetWeights(const dnnl::engine& engine, dnnl::stream& stream, const PackedPlan& plan,
                  const PackedProblem& problem, OneDnnArguments& arguments) {
  const memory::desc weights = plan.primitive.weights_desc();
  // Sums behind the elements are not looked at when the elements are taken out of their blocks.
  const uint64_t bytes =
      plan.repacks ? problem.request.weights_desc->Elements() : weights.get_size();
  const uint64_t found = problem.packed.weight.size();
  if (found < bytes || (found > bytes && !plan.repacks)) {
    return Malformed("weight", "its size differs from that of oneDNN's descriptor")
        .Found(fmt::format("{} bytes", found))
        .Expected(fmt::format("{}", bytes));
  }
  arguments[DNNL_ARG_WEIGHTS] = plan.repacks
                                    ? Repacked(engine, stream, weights, problem)
                                    : memory(weights, engine, Pointer(problem.packed.weight));
  if (IsPlain(problem)) return {};
  if (IsW8A8(problem)) {
    AddW8A8Parameters(engine, problem, arguments);
  } else {
    AddW4Parameters(engine, problem, arguments);
  }
  return {};
}

Result<PackedExecution> PrepareExecution(const dnnl::engine& engine, dnnl::stream& stream,
                                         const PackedPlan& plan, const PackedProblem& problem,
                                         std::span<float> y) {
  PackedExecution execution;
  void* const x = FeedOf(plan, problem, execution);
  if (ResultOf(plan) != DType::kF32) execution.stored.resize(y.size() * sizeof(uint16_t));
  void* const result =
      execution.stored.empty() ? static_cast<void*>(y.data()) : execution.stored.data();
  OneDnnArguments& arguments = execution.arguments;
  arguments = {{DNNL_ARG_SRC, memory(plan.primitive.src_desc(), engine, x)},
               {DNNL_ARG_DST, memory(plan.primitive.dst_desc(), engine, result)},
               {DNNL_ARG_SCRATCHPAD, memory(plan.primitive.scratchpad_desc(), engine)}};
  PREPACK_TRY(SetWeights(engine, stream, plan, problem, arguments));
  if (IsW4A8(problem)) {
    arguments[DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC] = memory(
        RowMajor(problem.input.m, 1, Type::f32), engine, Pointer(execution.quantized.scales));
  }
  if (IsW8A8(problem) && !problem.request.scheme.activations.dynamic) {
    AddStaticArguments(engine, problem, execution);
  }
  return execution;
}

Status RunPacked(const dnnl::engine& engine, dnnl::stream& stream, const PackedPlan& plan,
                 const PackedProblem& problem, std::span<float> y) {
  PREPACK_TRY_ASSIGN(const PackedExecution execution,
                     PrepareExecution(engine, stream, plan, problem, y));
  dnnl::matmul(plan.primitive).execute(stream, execution.arguments);
  stream.wait();
  if (!execution.stored.empty()) {
    std::ranges::copy(LoadFloats(ResultOf(plan), execution.stored), y.begin());
  }
  if (IsW8A8(problem) && problem.request.scheme.activations.dynamic) {
    FinishDynamic(problem, execution.quantized, y);
  }
  AddBiasAndRound(problem, y);
  return {};
}

}  // namespace prepack
