// What the models refuse, before they read a byte of an operand.

#include <algorithm>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "catch.h"
#include "gemm/kernel_model_file.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/layouts/table.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

std::filesystem::path GoldenPath(const std::string& name) {
  return Fixture("golden/" + name + ".safetensors");
}

Status Make(const KernelModelFile& golden, const PackedOperands& packed) {
  return MakeKernelModel(golden.file.layout(), packed, golden.input).status();
}

TEST_CASE("a layout without a model is named") {
  CheckError(MakeKernelModel("vllm-cpu/w3", {}, {}).status(), ErrorKind::kUnsupported,
             "no model computes what a kernel makes of this layout (found \"vllm-cpu/w3\")");
}

TEST_CASE("every model is made by its own id") {
  for (const std::string_view layout : ModelledLayouts()) {
    CheckError(MakeKernelModel(layout, {}, {}).status(), ErrorKind::kUsage,
               std::string(layout) + ": GEMM: a size is out of range (found M = 0");
  }
}

TEST_CASE("every layout has one model, and it is known what its kernel makes of weights") {
  const std::vector<std::string_view> modelled = ModelledLayouts();
  CHECK(modelled.size() == AllLayouts().size());
  for (const Layout& layout : AllLayouts()) {
    INFO(layout.id << ": no model");
    CHECK(std::ranges::count(modelled, layout.id) == 1);
    CHECK(WeightRoundingOf(layout, {}).has_value());
  }
  CHECK_FALSE(WeightRoundingOf(Layout{.id = "no/such"}, {}).has_value());
}

TEST_CASE("an operand that is a byte too short or too long is refused by every model") {
  const std::vector<std::byte> room(1 << 20);
  struct Operand {
    const char* name;
    std::span<const std::byte> PackedOperands::*bytes;
  };
  const std::vector<Operand> operands = {
      {"weight", &PackedOperands::weight},
      {"weight_scale", &PackedOperands::scale},
      {"weight_zero_point", &PackedOperands::zero_point},
      {"weight_sum", &PackedOperands::weight_sum},
      {"bias", &PackedOperands::bias},
  };
  size_t refusals = 0;
  for (const auto& path : GoldenFiles()) {
    const KernelModelFile golden(path);
    INFO("file " << golden.name);
    RequireOk(Make(golden, golden.packed));
    for (const Operand& operand : operands) {
      const size_t size = (golden.packed.*operand.bytes).size();
      if (size == 0) continue;
      for (const size_t wrong : {size - 1, size + 1}) {
        if (wrong == 0) continue;  // an operand that is not there
        INFO(operand.name << " of " << wrong << " bytes, not " << size);
        PackedOperands packed = golden.packed;
        packed.*operand.bytes = std::span(room).first(wrong);
        CheckError(Make(golden, packed), ErrorKind::kUsage,
                   std::string("GEMM: ") + operand.name + ": the size does not match the shape");
        ++refusals;
      }
    }
  }
  CHECK(refusals > 700);
}

TEST_CASE("operands that must be there, and that must not, are named") {
  const KernelModelFile int4(GoldenPath("vllm-cpu_int4-w4a8_min-sym"));
  PackedOperands packed = int4.packed;
  packed.zero_point = {};
  CheckError(Make(int4, packed), ErrorKind::kUsage, "weight_zero_point: the size does not match");
  const KernelModelFile asymmetric(GoldenPath("onednn_w8a8_dyn-asym-n96-k256"));
  packed = asymmetric.packed;
  packed.weight_sum = {};
  CheckError(Make(asymmetric, packed), ErrorKind::kUsage, "weight_sum: the size does not match");
  for (const char* name : {"vllm-cpu_int8-vnni_min", "zentorch_da8w4_min-n1-k8",
                           "zentorch_int8_min-n1-k1", "vllm-cpu_fp8-vnni_min-k32",
                           "vllm-cpu_fp8-w8a8-plain_min-perchannel", "onednn_w8a8_dyn-sym-n7-k9"}) {
    const KernelModelFile golden(GoldenPath(name));
    INFO(name);
    packed = golden.packed;
    packed.zero_point = packed.weight;
    CheckError(Make(golden, packed), ErrorKind::kUsage,
               "weight_zero_point: the layout has no such tensor");
  }
}

// A file, a change that breaks one rule of its layout, and what is said.
struct BrokenRule {
  std::string file;
  std::function<void(PackedOperands&, ModelInput&)> change;
  std::string text;
};

TEST_CASE("the rules of each layout are checked") {
  const std::vector<BrokenRule> rules = {
      {"vllm-cpu_wna16_min-sym", [](auto& p, auto&) { p.n = 48; },
       "N must be a multiple of 32 (found 48)"},
      {"vllm-cpu_wna16_min-sym", [](auto& p, auto&) { p.group_size = 1; },
       "the group size must be even (found 1)"},
      {"vllm-cpu_wna16_min-sym", [](auto& p, auto&) { p.scale_dtype = DType::kF16; },
       "weight_scale: the kernel does not take this type (found F16, expected BF16)"},
      {"vllm-cpu_wna16_min-sym", [](auto&, auto& x) { x.dtype = DType::kF32; },
       "x: the kernel does not take this type (found F32, expected BF16 or F16)"},
      {"vllm-cpu_wna16_real-g128-bias", [](auto& p, auto&) { p.bias_dtype = DType::kF32; },
       "bias: the kernel does not take this type (found F32, expected BF16)"},
      {"vllm-cpu_int4-w4a8_group4-asym", [](auto& p, auto&) { p.group_size = 2; },
       "the group size must be a multiple of 4 (found 2)"},
      {"vllm-cpu_int4-w4a8_real-g128-bias", [](auto& p, auto&) { p.bias_dtype = DType::kBF16; },
       "bias: the kernel does not take this type (found BF16, expected F32)"},
      {"vllm-cpu_int8-vnni_min", [](auto& p, auto&) { p.n = 16; },
       "N must be a multiple of 32 (found 16)"},
      {"vllm-cpu_int8-vnni_min", [](auto& p, auto&) { p.group_size = 16; },
       "a channel has one scale (found 16)"},
      {"vllm-cpu_fp8-vnni_min-k32", [](auto& p, auto&) { p.n = 16; },
       "N must be a multiple of 32 (found 16)"},
      {"vllm-cpu_fp8-vnni_min-k32", [](auto& p, auto&) { p.block_rows = 16; },
       "a scale must cover a multiple of 32 output channels (found 16)"},
      {"vllm-cpu_fp8-w8a8-plain_min-perchannel", [](auto& p, auto&) { p.n = 8; },
       "N must be a multiple of 32 (found 8)"},
      {"vllm-cpu_fp8-w8a8-vnni4_min-perchannel", [](auto& p, auto&) { p.group_size = 2; },
       "a block must hold a multiple of 4 input channels (found 2)"},
      {"zentorch_woq_min-n1-k8", [](auto& p, auto&) { p.scale_dtype = DType::kF16; },
       "weight_scale: the kernel does not take this type (found F16, expected BF16 or F32)"},
      {"zentorch_da8w4_group4", [](auto& p, auto&) { p.group_size = 2; },
       "the group size must be a multiple of 4 (found 2)"},
      {"zentorch_int8_n3-k7", [](auto& p, auto&) { p.group_size = 1; },
       "a channel has one scale (found 1)"},
      {"zentorch_int8-dlp_n7-k9", [](auto& p, auto&) { p.group_size = 3; },
       "a channel has one scale (found 3)"},
      {"onednn_w8a8_dyn-sym-n7-k9", [](auto& p, auto&) { p.group_size = 3; },
       "a channel has one scale (found 3)"},
      {"onednn_w8a8_static-sym-n64-k192", [](auto& p, auto&) { p.input_scale = 0; },
       "the scale of static activations must be a number above 0 (found 0)"},
      {"onednn_w8a8_static-sym-n64-k192", [](auto& p, auto&) { p.input_scale = std::nanf(""); },
       "the scale of static activations must be a number above 0 (found nan)"},
      {"onednn_w8a8_static-asym-n33-k129", [](auto& p, auto&) { p.input_zero_point = -129; },
       "the zero point of static activations must fit in 8 bits (found -129)"},
      {"kt_amxint8_min", [](auto& p, auto&) { p.n = 16; }, "N must be a multiple of 32 (found 16)"},
      {"kt_amxint8_min",
       [](auto& p, auto& x) {
         p.k = 48;
         x.x = x.x.first(x.m * p.k);
       },
       "K must be a multiple of 64 (found 48)"},
      {"kt_amxint8_min", [](auto& p, auto&) { p.group_size = 32; },
       "a channel has one scale (found 32)"},
      {"kt_amxint8_min", [](auto&, auto& x) { x.dtype = DType::kF32; },
       "x: the kernel does not take this type (found F32, expected BF16)"},
      {"kt_amxint8_min", [](auto& p, auto&) { p.scale_dtype = DType::kBF16; },
       "weight_scale: the kernel does not take this type (found BF16, expected F32)"},
      {"kt_amxint8_min", [](auto& p, auto&) { p.zero_point = p.weight; },
       "weight_zero_point: the layout has no such tensor"},
      {"kt_amxint8_min", [](auto& p, auto&) { p.bias = p.weight; },
       "bias: the layout has no such tensor"},
      {"kt_amxint4_min", [](auto& p, auto&) { p.n = 16; }, "N must be a multiple of 32 (found 16)"},
      {"kt_amxint4_min",
       [](auto& p, auto& x) {
         p.k = 96;
         x.x = x.x.first(x.m * p.k);
       },
       "K must be a multiple of 128 (found 96)"},
      {"kt_amxint4_min", [](auto& p, auto&) { p.group_size = 32; },
       "a channel has one scale (found 32)"},
      {"kt_amxint4_min", [](auto&, auto& x) { x.dtype = DType::kF32; },
       "x: the kernel does not take this type (found F32, expected BF16)"},
      {"kt_amxint4_min", [](auto& p, auto&) { p.scale_dtype = DType::kBF16; },
       "weight_scale: the kernel does not take this type (found BF16, expected F32)"},
      {"kt_amxint4_min", [](auto& p, auto&) { p.zero_point = p.weight; },
       "weight_zero_point: the layout has no such tensor"},
      {"kt_amxint4_min", [](auto& p, auto&) { p.bias = p.weight; },
       "bias: the layout has no such tensor"},
      {"zentorch_int8_n3-k7", [](auto& p, auto&) { p.group_size = 0; },
       "the number of channels per scale is out of range (found 1 output x 0 input"},
      {"zentorch_int8_n3-k7", [](auto& p, auto&) { p.block_rows = 0; },
       "the number of channels per scale is out of range (found 0 output x 7 input"},
      {"zentorch_int8_n3-k7", [](auto& p, auto&) { p.n = uint64_t{1} << 31; },
       "a size is out of range (found M = 2, N = 2147483648, K = 7, expected 1 to 2^31 - 1)"},
      {"zentorch_int8_n3-k7", [](auto&, auto& x) { x.m = 1; },
       "x: the size does not match the shape (found 14 elements, expected 7)"},
      {"zentorch_int8_n3-k7", [](auto&, auto& x) { x.dtype = DType::kI8; },
       "x: the kernel does not take this type (found I8, expected BF16 or F16 or F32)"},
  };
  for (const BrokenRule& rule : rules) {
    const KernelModelFile golden(GoldenPath(rule.file));
    INFO("file " << rule.file << ": " << rule.text);
    PackedOperands packed = golden.packed;
    ModelInput input = golden.input;
    rule.change(packed, input);
    CheckError(MakeKernelModel(golden.file.layout(), packed, input).status(), ErrorKind::kUsage,
               golden.file.layout() + ": GEMM");
    CheckError(MakeKernelModel(golden.file.layout(), packed, input).status(), ErrorKind::kUsage,
               rule.text);
  }
}

TEST_CASE("groups that do not fill K are refused by every layout that has groups") {
  for (const char* name :
       {"vllm-cpu_wna16_min-sym", "vllm-cpu_int4-w4a8_min-sym", "zentorch_woq_min-n1-k8",
        "zentorch_da8w4_min-n1-k8", "vllm-cpu_fp8-w8a8-plain_min-perchannel",
        "vllm-cpu_fp8-w8a8-vnni4_min-perchannel"}) {
    const KernelModelFile golden(GoldenPath(name));
    INFO(name);
    PackedOperands packed = golden.packed;
    for (const uint64_t group_size : {packed.k - 1, packed.k + 4}) {
      packed.group_size = group_size;
      CheckError(Make(golden, packed), ErrorKind::kUsage, "the group size must divide K");
    }
  }
}

TEST_CASE("the rules of layouts that no file has") {
  const std::vector<float> x(64);
  PackedOperands packed;
  packed.n = 1;
  packed.k = 64;
  packed.group_size = 64;
  const ModelInput input = {.m = 1, .dtype = DType::kBF16, .x = x};
  for (const char* layout : {"onednn/w4a16", "onednn/w4a8"}) {
    PackedOperands uneven = packed;
    uneven.group_size = 48;
    CheckError(MakeKernelModel(layout, uneven, input).status(), ErrorKind::kUsage,
               "the group size must divide K (found group size 48, K = 64)");
    CheckError(MakeKernelModel(layout, packed, input).status(), ErrorKind::kUsage,
               "N must be even (found 1)");
  }
  CheckError(MakeKernelModel("vllm-cpu/bf16-vnni", packed, input).status(), ErrorKind::kUsage,
             "N must be a multiple of 16 (found 1)");
  CheckError(MakeKernelModel("plain/bf16", packed, input).status(), ErrorKind::kUsage,
             "weight: the size does not match the shape (found 0 bytes, expected 128)");
  CheckError(MakeKernelModel("plain/bf16-conv1d", packed, input).status(), ErrorKind::kUsage,
             "weight: the size does not match the shape (found 0 bytes, expected 128)");
  CheckError(MakeKernelModel("vllm-cpu/int8-plain", packed, input).status(), ErrorKind::kUsage,
             "weight: the size does not match the shape (found 0 bytes, expected 64)");
}

TEST_CASE("activations that the type cannot hold are refused") {
  const KernelModelFile golden(GoldenPath("zentorch_int8_n3-k7"));
  for (const float value : {1.001F, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = golden.x;
    x[3] = value;
    ModelInput input = golden.input;
    input.x = x;
    CheckError(MakeKernelModel("zentorch/int8", golden.packed, input).status(), ErrorKind::kUsage,
               "GEMM: x: a value is not a BF16 number");
  }
}

TEST_CASE("an output of another size is refused") {
  for (const char* name : {"zentorch_int8_n3-k7", "zentorch_woq_n7-k40-perchannel"}) {
    const KernelModelFile golden(GoldenPath(name));
    const auto model = Value(MakeKernelModel(golden.file.layout(), golden.packed, golden.input));
    for (const size_t size : {golden.y.size() + 1, golden.y.size() + golden.input.m, size_t{0}}) {
      std::vector<float> y(size);
      CheckError(model->Run(0, y), ErrorKind::kUsage, "GEMM: y: the size does not match the shape");
    }
  }
}

TEST_CASE("an output that starts where no model can start is refused") {
  for (const char* name : {"zentorch_int8_n3-k7", "zentorch_woq_n7-k40-perchannel"}) {
    const KernelModelFile golden(GoldenPath(name));
    const auto model = Value(MakeKernelModel(golden.file.layout(), golden.packed, golden.input));
    std::vector<float> y(golden.input.m);
    for (const uint64_t n0 : {uint64_t{1}, kModelUnit, ~uint64_t{0} / 64 * 64}) {
      CheckError(model->Run(n0, y), ErrorKind::kUsage,
                 "GEMM: y: a model cannot start at this output channel");
    }
  }
}

}  // namespace
}  // namespace prepack::testing
