#include "matmul_description.h"

#include "refusal.h"
#include "wanted_form.h"

namespace {

using dnnl::memory;
using Type = memory::data_type;
using Tag = memory::format_tag;

constexpr int kPerTensor = 0;
constexpr int kPerOutputChannel = 2;
constexpr int kBothDims = 3;

// One matmul to ask oneDNN about.
struct Question {
  memory::dim rows = kProbeRows;
  memory::desc weights;
  bool zero_points = false;  // of the inputs, that the primitive takes off
  bool bias = false;         // that the primitive adds
};

memory::dim Dim(uint64_t value) {
  return static_cast<memory::dim>(value);
}

bool IsStatic(const Module& module) {
  return module.activations.quantized && !module.activations.dynamic;
}

Type TypeOf(const std::string& dtype) {
  if (dtype == "BF16") return Type::bf16;
  return dtype == "F16" ? Type::f16 : Type::f32;
}

Type TypeOf(InputType input) {
  if (input == InputType::kS8) return Type::s8;
  return input == InputType::kBF16 ? Type::bf16 : Type::f32;
}

Type WeightType(const Module& module) {
  if (!module.Is4Bit()) return Type::s8;
  return module.symmetric ? Type::s4 : Type::u4;
}

// Scales [G, N] and zero points [G, N] of 4-bit weights; s8 inputs have a scale for each row.
dnnl::primitive_attr AttributesOf4Bit(const Module& module, InputType input) {
  const memory::dims groups = {Dim(module.group_size), 1};
  dnnl::primitive_attr attributes;
  attributes.set_scales(DNNL_ARG_WEIGHTS, kBothDims, groups, Type::f32);
  if (!module.symmetric) attributes.set_zero_points(DNNL_ARG_WEIGHTS, kBothDims, groups, Type::u4);
  if (input == InputType::kS8) {
    attributes.set_scales(DNNL_ARG_SRC, kBothDims, {1, Dim(module.k)}, Type::f32);
  } else {
    const bool bf16 = input == InputType::kBF16;
    attributes.set_fpmath_mode(bf16 ? dnnl::fpmath_mode::bf16 : dnnl::fpmath_mode::strict,
                               /*apply_to_int=*/true);
  }
  return attributes;
}

// Scales [N]; static inputs have one scale, and maybe a zero point, in all. Scales of rows would
// send oneDNN to a reference implementation, so those are ours to apply.
dnnl::primitive_attr AttributesOfW8A8(const Module& module, const Question& question) {
  dnnl::primitive_attr attributes;
  attributes.set_scales_mask(DNNL_ARG_WEIGHTS, kPerOutputChannel);
  if (IsStatic(module)) attributes.set_scales_mask(DNNL_ARG_SRC, kPerTensor);
  if (question.zero_points) attributes.set_zero_points_mask(DNNL_ARG_SRC, kPerTensor);
  return attributes;
}

dnnl::matmul::primitive_desc Ask(const dnnl::engine& engine, const Module& module,
                                 const MatmulDescription& matmul, const Question& question) {
  dnnl::primitive_attr attributes =
      module.Is4Bit() ? AttributesOf4Bit(module, matmul.input) : AttributesOfW8A8(module, question);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const memory::desc x({question.rows, Dim(module.k)}, TypeOf(matmul.input), Tag::ab);
  const Type result = TypeOf(matmul.result_dtype);
  const memory::desc y({question.rows, Dim(module.n)}, result, Tag::ab);
  if (!question.bias) {
    return {engine, x, question.weights, y, attributes, /*allow_empty=*/true};
  }
  const memory::desc bias({1, Dim(module.n)}, result, Tag::ab);
  return {engine, x, question.weights, bias, y, attributes, /*allow_empty=*/true};
}

}  // namespace

MatmulDescription DescribeMatmul(const dnnl::engine& engine, const Module& module,
                                 const std::string& activation_dtype, memory::dim rows) {
  MatmulDescription matmul;
  if (!module.activations.quantized) matmul.input = InputType::kBF16;
  if (IsStatic(module)) {
    matmul.result_dtype = activation_dtype;
    matmul.adds_bias = module.Has("bias");
  }
  Question question{.weights = {{Dim(module.k), Dim(module.n)}, WeightType(module), Tag::any},
                    .zero_points = IsStatic(module) && !module.activations.symmetric};
  dnnl::matmul::primitive_desc probe = Ask(engine, module, matmul, question);
  if (!probe && matmul.input == InputType::kBF16) {
    matmul.input = InputType::kF32;  // a CPU without bf16 multiplies the same numbers in f32
    probe = Ask(engine, module, matmul, question);
  }
  Question without = question;
  without.zero_points = false;
  const dnnl::matmul::primitive_desc plain_probe = Ask(engine, module, matmul, without);
  if (probe && plain_probe) {
    matmul.wanted = WantedForm(probe.weights_desc(), plain_probe.weights_desc());
    question.rows = rows;
    question.weights = probe.weights_desc();
    question.bias = matmul.adds_bias;
    matmul.primitive = Ask(engine, module, matmul, question);
  }
  if (matmul.primitive) return matmul;
  throw Refusal(Exit::kUnavailable, "module " + module.name + ": oneDNN has no matmul for " +
                                        module.layout + " with groups of " +
                                        std::to_string(module.group_size) + " here");
}
