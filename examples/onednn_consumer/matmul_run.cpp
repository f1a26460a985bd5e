#include "matmul_run.h"

#include <unordered_map>

#include "floats.h"

namespace {

using dnnl::memory;
using Arguments = std::unordered_map<int, memory>;
using Type = memory::data_type;
using Tag = memory::format_tag;

// oneDNN takes pointers without const; it does not write to what it reads.
void* Pointer(const void* data) {
  return const_cast<void*>(data);
}

memory Matrix(const dnnl::engine& engine, uint64_t rows, uint64_t columns, Type type,
              const void* data) {
  const memory::dims dims = {static_cast<memory::dim>(rows), static_cast<memory::dim>(columns)};
  return {{dims, type, Tag::ab}, engine, Pointer(data)};
}

memory Vector(const dnnl::engine& engine, uint64_t size, Type type, const void* data) {
  return {{{static_cast<memory::dim>(size)}, type, Tag::a}, engine, Pointer(data)};
}

// Scales and zero points where they lie in the file.
void AddParameters(const dnnl::engine& engine, const Module& module, const Operands& operands,
                   const KernelInput& input, Arguments& arguments) {
  constexpr int kScales = DNNL_ARG_ATTR_SCALES;
  constexpr int kZeroPoints = DNNL_ARG_ATTR_ZERO_POINTS;
  if (module.Is4Bit()) {
    const uint64_t groups = module.k / module.group_size;
    arguments[kScales | DNNL_ARG_WEIGHTS] =
        Matrix(engine, groups, module.n, Type::f32, operands.scale.data());
    if (!operands.zero_point.empty()) {
      arguments[kZeroPoints | DNNL_ARG_WEIGHTS] =
          Matrix(engine, groups, module.n, Type::u4, operands.zero_point.data());
    }
    if (!input.scales.empty()) {
      arguments[kScales | DNNL_ARG_SRC] =
          Matrix(engine, input.scales.size(), 1, Type::f32, input.scales.data());
    }
    return;
  }
  arguments[kScales | DNNL_ARG_WEIGHTS] =
      Vector(engine, module.n, Type::f32, operands.scale.data());
  if (module.activations.dynamic) return;
  arguments[kScales | DNNL_ARG_SRC] = Vector(engine, 1, Type::f32, &operands.input_scale);
  if (!module.activations.symmetric) {
    arguments[kZeroPoints | DNNL_ARG_SRC] =
        Vector(engine, 1, Type::s32, &operands.input_zero_point);
  }
}

// Dynamic 8-bit activations: y = sums * scale of the row - weight_sum * (that scale * zero point).
void ScaleRows(const Module& module, const Operands& operands, const KernelInput& input,
               std::vector<float>& y) {
  for (uint64_t i = 0; i < y.size(); ++i) {
    const float scale = input.scales[i / module.n];
    y[i] *= scale;
    if (operands.weight_sum.empty()) continue;
    const auto zero_point = static_cast<float>(input.zero_points[i / module.n]);
    y[i] -= operands.weight_sum[i % module.n] * (scale * zero_point);
  }
}

}  // namespace

std::vector<float> RunMatmul(const dnnl::engine& engine, const MatmulDescription& matmul,
                             const Module& module, const Operands& operands,
                             std::span<const std::byte> weights, KernelInput& input) {
  const memory::desc result = matmul.primitive.dst_desc();
  std::vector<std::byte> stored(result.get_size());
  Arguments arguments = {
      {DNNL_ARG_SRC, memory(matmul.primitive.src_desc(), engine, input.data())},
      {DNNL_ARG_WEIGHTS, memory(matmul.primitive.weights_desc(), engine, Pointer(weights.data()))},
      {DNNL_ARG_DST, memory(result, engine, stored.data())},
      {DNNL_ARG_SCRATCHPAD, memory(matmul.primitive.scratchpad_desc(), engine)}};
  AddParameters(engine, module, operands, input, arguments);
  if (matmul.adds_bias) {
    arguments[DNNL_ARG_BIAS] =
        Matrix(engine, 1, module.n, result.get_data_type(), operands.bias.data());
  }
  dnnl::stream stream(engine);
  dnnl::matmul(matmul.primitive).execute(stream, arguments);
  stream.wait();

  std::vector<float> y = ReadFloats(matmul.result_dtype, stored);
  if (!module.Is4Bit() && module.activations.dynamic) ScaleRows(module, operands, input, y);
  if (!matmul.adds_bias && !operands.bias_values.empty()) {
    for (uint64_t i = 0; i < y.size(); ++i) y[i] += operands.bias_values[i % module.n];
  }
  return y;
}
