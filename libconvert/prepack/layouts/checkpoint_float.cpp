// FP8 and FP4 weights as checkpoint formats store them.
//
// compressed-tensors (mirrors 0.19, compressors/):
//
//     float-quantized       MODULE.weight               F8_E4M3 [N, K]; naive-quantized is the same
//                                                       for activations that are not quantized
//                           MODULE.weight_scale         [1], [N, 1] or [⌈N/r⌉, ⌈K/c⌉]
//     mxfp8-quantized       the same weight, scales U8 [N, K/32]: u means 2^(u − 127)
//     nvfp4-pack-quantized  MODULE.weight_packed        U8 [N, K/2], the even input in the low half
//                           MODULE.weight_scale         F8_E4M3 [N, K/16], which is divided by
//                           MODULE.weight_global_scale  F32 [1]
//     mxfp4-pack-quantized  the same codes, scales U8 [N, K/32]
//
// quant_method fp8 (mirrors transformers 5.23, integrations/finegrained_fp8.py):
//
//     MODULE.weight            F8_E4M3 [N, K]
//     MODULE.weight_scale_inv  F32 [⌈N/r⌉, ⌈K/c⌉], or [] of a module with one scale; multiplies
//     MODULE.activation_scale  F32 [], of static activations
//
// ModelOpt (mirrors nvidia-modelopt 0.47, torch/export):
//
//     MODULE.weight          F8_E4M3 [N, K]; U8 [N, K/2] of NVFP4
//     MODULE.weight_scale    F32 [], [N] or [⌈N/128⌉, 1, ⌈K/128⌉, 1]; F8_E4M3 [N, K/16] of NVFP4;
//                            U8 [N, K/32] of MXFP8
//     MODULE.weight_scale_2  F32 [], of NVFP4; multiplies
//     MODULE.input_scale     F32 [], of static activations, and of those of NVFP4

#include <fmt/format.h>

#include <array>

#include "prepack/layouts/checkpoint_parts.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/placement.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

constexpr uint64_t kNvInputs = 16;

bool IsFloat8(const PackRequest& request) {
  return request.scheme.code == CodeType::kF8E4M3;
}
bool IsMx8(const PackRequest& request) {
  return IsFloat8(request) && symbol::kPerGroup.Of(request);
}
bool IsFloat4(const PackRequest& request, uint64_t group_size) {
  return request.scheme.code == CodeType::kF4E2M1 && request.scheme.group_size == group_size;
}
bool IsWide(const PackRequest& request) {
  return request.scheme.activations.type == ActivationType::kNone;
}

constexpr std::string_view kFloat8Codes = "FP8 (e4m3) weights";
constexpr std::string_view kNvCodes = "NVFP4: FP4 (e2m1) weights in groups of 16";
constexpr std::string_view kMx4Codes = "MXFP4: FP4 (e2m1) weights in groups of 32";
constexpr std::string_view kMx8Codes = "MXFP8: FP8 weights in groups of 32";

// What all of them ask.
Eligibility PlainLinear(const PackRequest& request, std::string_view format) {
  return AllOf({NoOrder(request, format), OutputsFirst(request, format), BiasIsFloat(request)});
}

Eligibility GroupsOf(const PackRequest& request, uint64_t size) {
  return MultipleOf("K", request.k, size, "that many input channels share a scale");
}

Eligibility InputGlobalScale(const PackRequest& request) {
  if (!request.facts.lacks_input_global_scale) return Eligibility::Yes();
  return Eligibility::No(
      "activations are quantized below a global scale, which the source does not have");
}

// Of FP8 whose groups are not those of MX.
Eligibility NoFloatGroups(const PackRequest& request, std::string_view format) {
  if (!symbol::kPerGroup.Of(request)) return Eligibility::Yes();
  return Eligibility::No(
      fmt::format("the scales are per group of {} inputs: {} stores those of FP8 per module, "
                  "output channel or block",
                  request.scheme.group_size, format));
}

TileCut CutRows(const PackRequest& request) {
  return {.rows = 1, .cols = 2, .strip_rows = StripUnit(request, 1)};
}

// Fills in what all rows of this file have in common.
constexpr Layout RowMajor(Layout row) {
  row.version = 1;
  row.isa = "any";
  row.checkpoint = true;
  row.cut = CutRows;
  row.weight_bit = RowMajorWeightBit;
  row.place_weight = PlaceChannels;
  row.pack_codes = PackPlain;
  row.unpack_codes = UnpackPlain;
  return row;
}

constexpr ScaleRow CtFloatScales(std::span<const PartRow> parts, DType value, DType stored) {
  return {.order = ParameterOrder::kRows, .value = value, .stored = stored, .parts = parts};
}

// Of MX formats: u means 2^(u − 127).
constexpr std::array kCtMxScales = {CtScale({symbol::kN, symbol::kG}, symbol::kAlways, DType::kU8)};
constexpr std::array kCtNvScales = {
    CtScale({symbol::kN, symbol::kG}, symbol::kAlways, DType::kF8E4M3)};

constexpr Condition kFourBitActivations{
    "4-bit activations",
    [](const PackRequest& r) { return r.scheme.activations.type == ActivationType::kFloat; }};

constexpr std::array kCtNvSides = {
    PartRow{.role = PartRole::kGlobalScale,
            .name = "weight_global_scale",
            .dtype = DType::kF32,
            .shape = {1}},
    PartRow{.role = PartRole::kInputGlobalScale,
            .name = "input_global_scale",
            .dtype = DType::kF32,
            .shape = {1},
            .when = kFourBitActivations},
};

constexpr PartRow kFloat4Packed{
    .name = "weight_packed",
    .dtype = DType::kU8,
    .shape = {symbol::kN, {"K/2", [](const PackRequest& r) { return r.k / 2; }}}};
constexpr PartRow kFloat4Weight{
    .dtype = DType::kU8,
    .shape = {symbol::kN, {"K/2", [](const PackRequest& r) { return r.k / 2; }}}};
constexpr PartRow kFloat8Weight{.dtype = DType::kF8E4M3, .shape = {symbol::kN, symbol::kK}};

template <bool kWide>
Eligibility EligibleCtFloat(const PackRequest& request) {
  return AllOf({
      CodesOf(request, IsFloat8(request) && !IsMx8(request) && IsWide(request) == kWide,
              kWide ? "FP8 (e4m3) weights without quantized activations"
                    : "FP8 (e4m3) weights with quantized activations"),
      PlainLinear(request, kCtName),
  });
}

Eligibility EligibleCtMx8(const PackRequest& request) {
  return AllOf(
      {CodesOf(request, IsMx8(request) && request.scheme.group_size == kMxInputs, kMx8Codes),
       GroupsOf(request, kMxInputs), PlainLinear(request, kCtName)});
}

Eligibility EligibleCtMx4(const PackRequest& request) {
  return AllOf({CodesOf(request, IsFloat4(request, kMxInputs), kMx4Codes),
                GroupsOf(request, kMxInputs), PlainLinear(request, kCtName)});
}

Eligibility EligibleCtNv4(const PackRequest& request) {
  return AllOf({CodesOf(request, IsFloat4(request, kNvInputs), kNvCodes),
                GroupsOf(request, kNvInputs), InputGlobalScale(request),
                PlainLinear(request, kCtName)});
}

}  // namespace

constinit const Layout kCtFloat = RowMajor({
    .id = "compressed-tensors/float-quantized",
    .target = kCtName,
    .consumer = "readers of float-quantized",
    .mirrors = "compressed-tensors 0.19, compressors/naive_quantized",
    .schemes = "FP8 weights, quantized activations",
    .constraints = "any N and K; scales per module, channel or block",
    .address = "byte n · K + k",
    .fingerprint = "af3d64e0eabb895ae7e19040b07f33b1",
    .side_parts = kCtInputs,
    .eligible = EligibleCtFloat<false>,
    .weight = kFloat8Weight,
    .scales = kCtScaleRow,
});

constinit const Layout kCtNaive = RowMajor({
    .id = "compressed-tensors/naive-quantized",
    .target = kCtName,
    .consumer = "readers of naive-quantized",
    .mirrors = "compressed-tensors 0.19, compressors/naive_quantized",
    .schemes = "FP8 weights, activations not quantized",
    .constraints = "any N and K; scales per module, channel or block",
    .address = "byte n · K + k",
    .fingerprint = "919929121659cf87ef57f41b4a8fe224",
    .eligible = EligibleCtFloat<true>,
    .weight = kFloat8Weight,
    .scales = kCtScaleRow,
});

constinit const Layout kCtMxfp8 = RowMajor({
    .id = "compressed-tensors/mxfp8-quantized",
    .target = kCtName,
    .consumer = "readers of mxfp8-quantized",
    .mirrors = "compressed-tensors 0.19, compressors/mxfp8",
    .schemes = "MXFP8 weights",
    .constraints = "K % 32 = 0",
    .address = "byte n · K + k",
    .notes = "scales are exponents: u means 2^(u − 127)",
    .fingerprint = "14a86088eefb6f2a7e9a8ed394ac9642",
    .eligible = EligibleCtMx8,
    .weight = kFloat8Weight,
    .scales = CtFloatScales(kCtMxScales, DType::kF8E8M0, DType::kU8),
});

constinit const Layout kCtMxfp4 = RowMajor({
    .id = "compressed-tensors/mxfp4-pack-quantized",
    .target = kCtName,
    .consumer = "readers of mxfp4-pack-quantized",
    .mirrors = "compressed-tensors 0.19, compressors/mxfp4",
    .schemes = "MXFP4 weights",
    .constraints = "K % 32 = 0",
    .address = "nibble n · K + k",
    .notes = "scales are exponents: u means 2^(u − 127)",
    .fingerprint = "5d8727eedad8fde597942457333686a8",
    .eligible = EligibleCtMx4,
    .weight = kFloat4Packed,
    .scales = CtFloatScales(kCtMxScales, DType::kF8E8M0, DType::kU8),
});

constinit const Layout kCtNvfp4 = RowMajor({
    .id = "compressed-tensors/nvfp4-pack-quantized",
    .target = kCtName,
    .consumer = "readers of nvfp4-pack-quantized",
    .mirrors = "compressed-tensors 0.19, compressors/nvfp4",
    .schemes = "NVFP4 weights",
    .constraints = "K % 16 = 0",
    .address = "nibble n · K + k",
    .notes = "the global scale divides; that of a source in which it multiplies is its reciprocal",
    .fingerprint = "1783a73d443b4cf2dbfcfb27a830c439",
    .side_parts = kCtNvSides,
    .eligible = EligibleCtNv4,
    .weight = kFloat4Packed,
    .scales = {.order = ParameterOrder::kRows,
               .value = DType::kF8E4M3,
               .stored = DType::kF8E4M3,
               .parts = kCtNvScales,
               .two_levels = true,
               .global_divides = true},
});

// quant_method fp8.

namespace {

constexpr std::string_view kFp8Name = "quant_method fp8";

constexpr Condition kNotPerBlock{"scales per tensor",
                                 [](const PackRequest& r) { return !symbol::kPerBlock.Of(r); }};

constexpr std::array kFp8Scales = {
    PartRow{.role = PartRole::kScale,
            .name = "weight_scale_inv",
            .dtype = symbol::kAsStored,
            .shape = {symbol::kScaleRows, symbol::kG},
            .when = symbol::kPerBlock},
    PartRow{.role = PartRole::kScale,
            .name = "weight_scale_inv",
            .dtype = symbol::kAsStored,
            .when = kNotPerBlock},
};
constexpr std::array kFp8Inputs = {PartRow{.role = PartRole::kInputScale,
                                           .name = "activation_scale",
                                           .dtype = DType::kF32,
                                           .when = symbol::kStaticActivations}};

bool IsFloat8Activations(const PackRequest& request) {
  const ActivationScheme& activations = request.scheme.activations;
  return activations.type == ActivationType::kFloat && activations.bits == 8;
}

// Readers of the format quantize activations as it implies.
Eligibility Fp8Activations(const PackRequest& request) {
  const ActivationScheme& activations = request.scheme.activations;
  if (IsFloat8Activations(request)) {
    using enum ActivationGranularity;
    const bool blocks = symbol::kPerBlock.Of(request);
    if (blocks && activations.dynamic && activations.granularity == kGroup &&
        activations.group_size == request.scheme.group_size) {
      return Eligibility::Yes();
    }
    if (!blocks && (activations.dynamic ? activations.granularity == kToken
                                        : activations.granularity == kTensor)) {
      return Eligibility::Yes();
    }
  }
  return Eligibility::No(fmt::format(
      "activations are {}: readers of {} quantize them to FP8, dynamically per group of a block's "
      "width, or per token or with a stored scale where a module has one scale",
      DescribeActivations(activations), kFp8Name));
}

Eligibility Fp8Granularity(const PackRequest& request) {
  if (symbol::kPerBlock.Of(request) || symbol::kPerTensor.Of(request)) return Eligibility::Yes();
  return Eligibility::No(fmt::format("the scales are per {}: {} has one per module or block",
                                     GranularityName(request.scheme.granularity), kFp8Name));
}

Eligibility EligibleFp8(const PackRequest& request) {
  return AllOf({CodesOf(request, IsFloat8(request), kFloat8Codes), NoFloatGroups(request, kFp8Name),
                Fp8Granularity(request), Fp8Activations(request), PlainLinear(request, kFp8Name)});
}

}  // namespace

constinit const Layout kFp8Blocks = RowMajor({
    .id = "fp8/e4m3",
    .target = "fp8",
    .consumer = "readers of quant_method fp8",
    .mirrors = "transformers 5.23, integrations/finegrained_fp8.py",
    .schemes = "FP8 weights, FP8 activations",
    .constraints = "scales per module, or per block of one size",
    .address = "byte n · K + k",
    .fingerprint = "1dc511ad9ade1f159b1750fbc5b2fe6b",
    .side_parts = kFp8Inputs,
    .eligible = EligibleFp8,
    .weight = kFloat8Weight,
    .scales = {.order = ParameterOrder::kRows,
               .value = symbol::kAsStored,
               .stored = symbol::kAsStored,
               .parts = kFp8Scales},
});

// MXFP4 as gpt-oss has it: the experts of a layer in one tensor each, which belongs to no module.
//
//     EXPERTS.PROJECTION_blocks   U8 [experts, N, K/32, 16], rows of codes, two in a byte
//     EXPERTS.PROJECTION_scales   U8 [experts, N, K/32]: u means 2^(u − 127)
//     EXPERTS.PROJECTION_bias     [experts, N]

namespace {

constexpr std::string_view kMxfp4Name = "quant_method mxfp4";

std::string StackedTensor(std::string_view module, const PartSpec& part) {
  return fmt::format("{}_{}", module, part.name);
}

Eligibility RoutedExperts(const PackRequest& request) {
  if (request.expert()) return Eligibility::Yes();
  return Eligibility::No(
      fmt::format("the module is not an expert of a mixture: {} has nothing else", kMxfp4Name));
}

Eligibility EligibleMxfp4Stacks(const PackRequest& request) {
  return AllOf({CodesOf(request, IsFloat4(request, kMxInputs), kMx4Codes), RoutedExperts(request),
                GroupsOf(request, kMxInputs), NoActivations(request, kMxfp4Name),
                PlainLinear(request, kMxfp4Name)});
}

constexpr std::array kStackedMxScales = {PartRow{.role = PartRole::kScale,
                                                 .name = "scales",
                                                 .dtype = DType::kU8,
                                                 .shape = {symbol::kN, symbol::kG}}};

}  // namespace

constinit const Layout kMxfp4Stacks = RowMajor({
    .id = "mxfp4/stacks",
    .target = "mxfp4",
    .consumer = "readers of quant_method mxfp4",
    .mirrors = "transformers 5.23, integrations/mxfp4.py",
    .schemes = "MXFP4 weights of experts, activations not quantized",
    .constraints = "K % 32 = 0; the experts of a layer together, stored as gpt-oss has them",
    .address = "nibble n · K + k of an expert",
    .notes = "scales are exponents: u means 2^(u − 127)",
    .fingerprint = "663f5176a74604f3d3662c70fab9b495",
    .for_experts = true,
    .stacks_experts = true,
    .eligible = EligibleMxfp4Stacks,
    .weight = {.name = "blocks",
               .dtype = DType::kU8,
               .shape = {symbol::kN, {"K/32", [](const PackRequest& r) { return r.k / 32; }}, 16}},
    .scales = CtFloatScales(kStackedMxScales, DType::kF8E8M0, DType::kU8),
    .tensor_name = StackedTensor,
});

// ModelOpt.

namespace {

constexpr std::string_view kModelOptName = "ModelOpt";
constexpr uint64_t kModelOptBlock = 128;

constexpr std::array kModelOptScales = {
    PartRow{.role = PartRole::kScale,
            .name = "weight_scale",
            .dtype = DType::kF32,
            .when = symbol::kPerTensor},
    PartRow{.role = PartRole::kScale,
            .name = "weight_scale",
            .dtype = DType::kF32,
            .shape = {symbol::kN},
            .when = symbol::kScalesPerChannel},
    PartRow{.role = PartRole::kScale,
            .name = "weight_scale",
            .dtype = DType::kF32,
            .shape = {symbol::kScaleRows, 1, symbol::kG, 1},
            .when = symbol::kPerBlock},
};
constexpr std::array kModelOptInputs = {PartRow{.role = PartRole::kInputScale,
                                                .name = "input_scale",
                                                .dtype = DType::kF32,
                                                .when = symbol::kStaticActivations}};
constexpr std::array kModelOptNvSides = {
    PartRow{.role = PartRole::kGlobalScale, .name = "weight_scale_2", .dtype = DType::kF32},
    PartRow{.role = PartRole::kInputGlobalScale,
            .name = "input_scale",
            .dtype = DType::kF32,
            .when = kFourBitActivations},
};

// Each of its algorithms is for one kind of scales and one of activations.
Eligibility ModelOptAlgorithm(const PackRequest& request) {
  using enum ActivationGranularity;
  const ActivationScheme& activations = request.scheme.activations;
  const bool fp8 = IsFloat8Activations(request);
  switch (request.scheme.granularity) {
    case Granularity::kTensor:
      if (fp8 && !activations.dynamic && activations.granularity == kTensor) {
        return Eligibility::Yes();
      }
      return Eligibility::No(
          fmt::format("activations are {}: ModelOpt's FP8 has a stored scale for those of a module",
                      DescribeActivations(activations)));
    case Granularity::kChannel:
      if (fp8 && activations.dynamic && activations.granularity == kToken) {
        return Eligibility::Yes();
      }
      return Eligibility::No(fmt::format(
          "activations are {}: ModelOpt's FP8_PER_CHANNEL_PER_TOKEN quantizes them per token",
          DescribeActivations(activations)));
    default:
      break;
  }
  if (request.scheme.scale_rows != kModelOptBlock || request.scheme.group_size != kModelOptBlock) {
    return Eligibility::No(fmt::format("blocks of {} x {}: those of ModelOpt are 128 x 128",
                                       request.scheme.scale_rows, request.scheme.group_size));
  }
  if (activations.type == ActivationType::kNone) return Eligibility::Yes();
  return Eligibility::No(fmt::format(
      "activations are {}: ModelOpt's FP8_PB_WO leaves them in 16 bits (target fp8 says so)",
      DescribeActivations(activations)));
}

Eligibility EligibleModelOptFp8(const PackRequest& request) {
  return AllOf({CodesOf(request, IsFloat8(request) && !IsMx8(request), kFloat8Codes),
                ModelOptAlgorithm(request), PlainLinear(request, kModelOptName)});
}

Eligibility EligibleModelOptNv4(const PackRequest& request) {
  return AllOf({CodesOf(request, IsFloat4(request, kNvInputs), kNvCodes),
                GroupsOf(request, kNvInputs), InputGlobalScale(request),
                PlainLinear(request, kModelOptName)});
}

Eligibility EligibleModelOptMx8(const PackRequest& request) {
  Eligibility activations = Eligibility::Yes();
  if (IsWide(request)) {
    activations = Eligibility::No("activations are not quantized: ModelOpt's MXFP8 quantizes them");
  }
  return AllOf(
      {CodesOf(request, IsMx8(request) && request.scheme.group_size == kMxInputs, kMx8Codes),
       GroupsOf(request, kMxInputs), activations, PlainLinear(request, kModelOptName)});
}

}  // namespace

constinit const Layout kModelOptFp8 = RowMajor({
    .id = "modelopt/fp8",
    .target = "modelopt",
    .consumer = "readers of quant_algo FP8, FP8_PER_CHANNEL_PER_TOKEN and FP8_PB_WO",
    .mirrors = "nvidia-modelopt 0.47, torch/export",
    .schemes = "FP8 weights",
    .constraints = "scales per module, channel or block of 128 x 128, each with its activations",
    .address = "byte n · K + k",
    .fingerprint = "b00b28977769f29b3dcb0366bf5d3fc3",
    .side_parts = kModelOptInputs,
    .eligible = EligibleModelOptFp8,
    .weight = kFloat8Weight,
    .scales = {.order = ParameterOrder::kRows,
               .value = DType::kF32,
               .stored = DType::kF32,
               .parts = kModelOptScales},
});

constinit const Layout kModelOptNvfp4 = RowMajor({
    .id = "modelopt/nvfp4",
    .target = "modelopt",
    .consumer = "readers of quant_algo NVFP4 and W4A16_NVFP4",
    .mirrors = "nvidia-modelopt 0.47, torch/export",
    .schemes = "NVFP4 weights",
    .constraints = "K % 16 = 0",
    .address = "nibble n · K + k",
    .notes = "the global scale multiplies; that of a source in which it divides is its reciprocal",
    .fingerprint = "a14cc87c6d679e60f5d72c9a7a6e6ce0",
    .side_parts = kModelOptNvSides,
    .eligible = EligibleModelOptNv4,
    .weight = kFloat4Weight,
    .scales = {.order = ParameterOrder::kRows,
               .value = DType::kF8E4M3,
               .stored = DType::kF8E4M3,
               .parts = kCtNvScales,
               .two_levels = true},
});

constinit const Layout kModelOptMxfp8 = RowMajor({
    .id = "modelopt/mxfp8",
    .target = "modelopt",
    .consumer = "readers of quant_algo MXFP8",
    .mirrors = "nvidia-modelopt 0.47, torch/export",
    .schemes = "MXFP8 weights",
    .constraints = "K % 32 = 0",
    .address = "byte n · K + k",
    .notes = "scales are exponents: u means 2^(u − 127)",
    .fingerprint = "14a86088eefb6f2a7e9a8ed394ac9642",
    .eligible = EligibleModelOptMx8,
    .weight = kFloat8Weight,
    .scales = CtFloatScales(kCtMxScales, DType::kF8E8M0, DType::kU8),
});

}  // namespace prepack
