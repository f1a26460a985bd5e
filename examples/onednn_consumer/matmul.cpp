#include "matmul.h"

#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <unordered_map>

#include "refusal.h"

namespace {

using dnnl::memory;
using Type = memory::data_type;
using Tag = memory::format_tag;
using Arguments = std::unordered_map<int, memory>;

// Which dimensions of a matrix have scales or zero points of their own: oneDNN's masks.
constexpr int kPerTensor = 0;
constexpr int kPerOutputChannel = 2;
constexpr int kBothDims = 3;

memory::dim Dim(uint64_t value) {
  return static_cast<memory::dim>(value);
}

Type TypeOf(const std::string& dtype) {
  if (dtype == "I8") return Type::s8;
  if (dtype == "BF16") return Type::bf16;
  return dtype == "F16" ? Type::f16 : Type::f32;
}

// --- Asking oneDNN for a primitive ---

struct Question {
  // Weights are packed once for any number of rows, so the form must not depend on this number.
  memory::dim rows = 128;
  memory::desc weights;
  bool zero_points = false;  // the primitive subtracts those of the inputs
  bool bias = false;         // the primitive adds it
};

// 4-bit weights have scales [G, N] and maybe zero points [G, N]; s8 inputs have a scale per row.
dnnl::primitive_attr AttributesOf4Bit(const Module& module, const std::string& input_dtype) {
  const memory::dims groups = {Dim(module.group_size), 1};
  dnnl::primitive_attr attributes;
  attributes.set_scales(DNNL_ARG_WEIGHTS, kBothDims, groups, Type::f32);
  if (!module.symmetric) attributes.set_zero_points(DNNL_ARG_WEIGHTS, kBothDims, groups, Type::u4);
  if (input_dtype == "I8") {
    attributes.set_scales(DNNL_ARG_SRC, kBothDims, {1, Dim(module.k)}, Type::f32);
  } else {
    const bool bf16 = input_dtype == "BF16";
    attributes.set_fpmath_mode(bf16 ? dnnl::fpmath_mode::bf16 : dnnl::fpmath_mode::strict,
                               /*apply_to_int=*/true);
  }
  return attributes;
}

// 8-bit weights have scales [N]; static inputs have one scale, and maybe one zero point. The
// primitive gets no scales of dynamic inputs: with a scale per row, oneDNN falls back to a slow
// reference implementation, so Multiply applies them.
dnnl::primitive_attr AttributesOf8Bit(const Module& module, const Question& question) {
  dnnl::primitive_attr attributes;
  attributes.set_scales_mask(DNNL_ARG_WEIGHTS, kPerOutputChannel);
  if (module.HasStaticActivations()) attributes.set_scales_mask(DNNL_ARG_SRC, kPerTensor);
  if (question.zero_points) attributes.set_zero_points_mask(DNNL_ARG_SRC, kPerTensor);
  return attributes;
}

// The answer is empty when oneDNN has no such primitive.
dnnl::matmul::primitive_desc Ask(const dnnl::engine& engine, const Module& module,
                                 const Matmul& matmul, const Question& question) {
  dnnl::primitive_attr attributes = module.Is4Bit() ? AttributesOf4Bit(module, matmul.input_dtype)
                                                    : AttributesOf8Bit(module, question);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const Type result = TypeOf(matmul.result_dtype);
  const memory::desc x({question.rows, Dim(module.k)}, TypeOf(matmul.input_dtype), Tag::ab);
  const memory::desc y({question.rows, Dim(module.n)}, result, Tag::ab);
  if (!question.bias) return {engine, x, question.weights, y, attributes, /*allow_empty=*/true};
  const memory::desc bias({1, Dim(module.n)}, result, Tag::ab);
  return {engine, x, question.weights, bias, y, attributes, /*allow_empty=*/true};
}

// --- The form that a primitive wants, in plain fields ---

std::array<uint64_t, 2> ToPair(const memory::dims& values) {
  return {static_cast<uint64_t>(values.at(0)), static_cast<uint64_t>(values.at(1))};
}

// How many arrays of sums, i32 [padded N], follow the elements.
uint64_t CountSums(const memory::desc& desc) {
  const auto [k, n] = ToPair(desc.get_padded_dims());
  const bool is_4_bit = desc.get_data_type() != Type::s8;
  return (desc.get_size() - k * n / (is_4_bit ? 2 : 1)) / (n * sizeof(int32_t));
}

// No query of oneDNN names the sums that follow the elements, but the size shows how many there
// are. `without_zero_points` is what the same primitive wants for inputs without zero points.
WeightsForm WantedForm(const memory::desc& wanted, const memory::desc& without_zero_points) {
  for (const memory::desc& desc : {wanted, without_zero_points}) {
    if (desc.get_format_kind() == memory::format_kind::blocked) continue;
    throw Refusal(Exit::kUnavailable,
                  "oneDNN wants weights in a form that plain fields cannot say");
  }
  WeightsForm form{.dims = ToPair(wanted.get_dims()),
                   .padded_dims = ToPair(wanted.get_padded_dims()),
                   .strides = ToPair(wanted.get_strides()),
                   .inner = {}};
  const memory::dims sizes = wanted.get_inner_blks();
  const memory::dims dims = wanted.get_inner_idxs();
  for (size_t i = 0; i < sizes.size(); ++i) form.inner.push_back(ToPair({dims[i], sizes[i]}));
  form.s8s8_compensation = CountSums(without_zero_points) > 0;
  form.zero_point_compensation = CountSums(wanted) > CountSums(without_zero_points);
  return form;
}

void Require(bool suits, const PackedFolder& folder, const Module& module, const std::string& what,
             const std::string& found, const std::string& expected) {
  if (suits) return;
  throw Refusal(Exit::kUnavailable, folder.path + ": module " + module.name + ": " + what +
                                        " (found " + found + ", expected " + expected +
                                        "). Pack again on this machine: " + folder.rebuild);
}

// --- The multiplication ---

// oneDNN takes pointers without const, but does not write through those to operands.
void* Pointer(const void* data) {
  return const_cast<void*>(data);
}

memory Array(const dnnl::engine& engine, const memory::dims& dims, Type type, const void* data) {
  return {{dims, type, dims.size() == 1 ? Tag::a : Tag::ab}, engine, Pointer(data)};
}

// Passes the scales and zero points that the attributes above announce.
void AddScales(const dnnl::engine& engine, const Module& module, const Operands& operands,
               const KernelInput& input, Arguments& arguments) {
  constexpr int kScales = DNNL_ARG_ATTR_SCALES;
  constexpr int kZeroPoints = DNNL_ARG_ATTR_ZERO_POINTS;
  const memory::dims groups = {Dim(module.k / module.group_size), Dim(module.n)};
  const auto add = [&](int argument, const memory::dims& dims, Type type, const void* data) {
    arguments[argument] = Array(engine, dims, type, data);
  };
  add(kScales | DNNL_ARG_WEIGHTS, module.Is4Bit() ? groups : memory::dims{Dim(module.n)}, Type::f32,
      operands.scale.data());
  if (!operands.zero_point.empty()) {
    add(kZeroPoints | DNNL_ARG_WEIGHTS, groups, Type::u4, operands.zero_point.data());
  }
  if (module.Is4Bit() && !input.scales.empty()) {
    add(kScales | DNNL_ARG_SRC, {Dim(input.scales.size()), 1}, Type::f32, input.scales.data());
  }
  if (!module.HasStaticActivations()) return;
  add(kScales | DNNL_ARG_SRC, {1}, Type::f32, &operands.input_scale);
  if (!module.activations.symmetric) {
    add(kZeroPoints | DNNL_ARG_SRC, {1}, Type::s32, &operands.input_zero_point);
  }
}

// Applies the scales and zero points of dynamic 8-bit activations to the primitive's sums:
// y = sums * scale of the row - weight_sum * (scale of the row * zero point of the row).
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

dnnl::engine MakeEngine() {
  Dl_info library{};
  if (dladdr(reinterpret_cast<const void*>(&dnnl_version), &library) != 0) {
    const auto driver = std::filesystem::path(library.dli_fname).parent_path() / "libintelocl.so";
    if (std::filesystem::exists(driver)) setenv("OCL_ICD_FILENAMES", driver.c_str(), 0);
  }
  return {dnnl::engine::kind::cpu, 0};
}

std::string OneDnnVersion() {
  const dnnl_version_t& version = *dnnl_version();
  return std::to_string(version.major) + "." + std::to_string(version.minor) + "." +
         std::to_string(version.patch);
}

std::string OneDnnIsa() {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "0x%x",
                static_cast<unsigned>(dnnl::get_effective_cpu_isa()));
  return text.data();
}

bool SumsInt8Exactly() {
  const auto has = [](dnnl::cpu_isa isa) {
    const auto wanted = static_cast<unsigned>(isa);
    return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
  };
  return has(dnnl::cpu_isa::avx2_vnni) || has(dnnl::cpu_isa::avx512_core_vnni);
}

Matmul DescribeMatmul(const dnnl::engine& engine, const PackedFolder& folder, const Module& module,
                      memory::dim rows) {
  Matmul matmul;
  if (!module.activations.quantized) matmul.input_dtype = "BF16";
  if (module.HasStaticActivations()) {
    matmul.result_dtype = folder.activation_dtype;
    matmul.adds_bias = module.Has("bias");
  }
  const Type unsigned_or_signed = module.symmetric ? Type::s4 : Type::u4;
  const Type weight_type = module.Is4Bit() ? unsigned_or_signed : Type::s8;
  Question question{.weights = {{Dim(module.k), Dim(module.n)}, weight_type, Tag::any},
                    .zero_points = module.HasStaticActivations() && !module.activations.symmetric};
  dnnl::matmul::primitive_desc any = Ask(engine, module, matmul, question);
  if (!any && matmul.input_dtype == "BF16") {
    matmul.input_dtype = "F32";  // a CPU without bf16 multiplies the same numbers in f32
    any = Ask(engine, module, matmul, question);
  }
  Question without = question;
  without.zero_points = false;
  const dnnl::matmul::primitive_desc any_without = Ask(engine, module, matmul, without);
  if (any && any_without) {
    matmul.wanted = WantedForm(any.weights_desc(), any_without.weights_desc());
    question.rows = rows;
    question.weights = any.weights_desc();
    question.bias = matmul.adds_bias;
    matmul.primitive = Ask(engine, module, matmul, question);
  }
  if (matmul.primitive) return matmul;
  throw Refusal(Exit::kUnavailable, "module " + module.name + ": oneDNN has no matmul for " +
                                        module.layout + " with groups of " +
                                        std::to_string(module.group_size) + " here");
}

void CheckOrigin(const PackedFolder& folder, const Module& module) {
  if (!module.origin) return;  // prepack chose the form without asking oneDNN
  Require(module.origin->version == OneDnnVersion(), folder, module,
          "it was packed for another version of oneDNN", module.origin->version, OneDnnVersion());
  Require(module.origin->isa == OneDnnIsa(), folder, module,
          "it was packed for other instructions of the CPU", module.origin->isa, OneDnnIsa());
}

void CheckForm(const PackedFolder& folder, const Module& module, const Matmul& matmul) {
  Require(module.form == matmul.wanted, folder, module,
          "oneDNN wants its weights in another form here", module.form.ToString(),
          matmul.wanted.ToString());
}

std::vector<float> Multiply(const Matmul& matmul, const Module& module, const Operands& operands,
                            const KernelInput& input) {
  const dnnl::engine engine = matmul.primitive.get_engine();
  const memory::desc result = matmul.primitive.dst_desc();
  std::vector<std::byte> stored(result.get_size());
  Arguments arguments = {
      {DNNL_ARG_SRC, memory(matmul.primitive.src_desc(), engine, Pointer(input.data.data()))},
      {DNNL_ARG_WEIGHTS,
       memory(matmul.primitive.weights_desc(), engine, Pointer(operands.weight.data()))},
      {DNNL_ARG_DST, memory(result, engine, stored.data())},
      {DNNL_ARG_SCRATCHPAD, memory(matmul.primitive.scratchpad_desc(), engine)}};
  AddScales(engine, module, operands, input, arguments);
  if (matmul.adds_bias) {
    arguments[DNNL_ARG_BIAS] =
        Array(engine, {1, Dim(module.n)}, result.get_data_type(), operands.bias.data());
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
