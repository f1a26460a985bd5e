// kt/amxint8: int8 experts for KTransformers' CPU kernels, method AMXINT8, which quantize
// activations per token, symmetric, themselves. kt-kernel copies the bytes of the file into its
// buffers. Mirrors kt-kernel 0.7.2: operators/amx/la/amx_kernels.hpp, GemmKernel224Int8::BufferB.
//
// weight, I8 [N · K]: blocks of 64 output channels (the last may have 32), cut into blocks of 3584
// input channels (the last may have fewer), cut into steps of 32 output channels, cut into tiles of
// 64 input channels. A tile is what two tile registers of AMX hold: the first 16 output channels,
// then the other 16, and for every four input channels those of the 16 side by side:
//
//     byte   0           4           …  60           64          …  1024        …
//            n0 k0…k3    n1 k0…k3    …  n15 k0…k3    n0 k4…k7    …  n16 k0…k3   …
//
// weight_scale, f32 [N].
//
// The kernel for CPUs without AMX, which also computes short inputs on CPUs with it, multiplies
// |x| with the weight times the sign of x. In eight bits -(-128) is -128, so it takes a code of
// -128 for +128 where x is negative. kt-kernel's own converter makes no such code; here modules
// with one are refused while they are packed.
//
// kt-kernel finds tensors by names of its own: the layer's number, the projection, the expert, and
// the NUMA node, which computes a share of every expert:
//
//     blk.LAYER.ffn_{gate,up,down}_exps.EXPERT.numa.NODE.{weight,scale}
//
// It counts the experts of a layer in the folder, so it wants all of them.

#include "prepack/kernels/kernels.h"
#include "prepack/kernels/unit_transpose.h"
#include "prepack/layouts/kt_experts.h"
#include "prepack/layouts/layout.h"
#include "prepack/layouts/rules.h"
#include "prepack/layouts/table.h"

namespace prepack {
namespace {

constexpr KtForm kInt8Form{.bits = 8, .block_rows = 64};

constexpr uint64_t Int8ByteOf(uint64_t rows, uint64_t inputs, uint64_t n, uint64_t k) {
  return KtByteOf(kInt8Form, rows, inputs, n, k);
}

static_assert(Int8ByteOf(64, 64, 1, 0) == 4);
static_assert(Int8ByteOf(64, 64, 0, 4) == 64);
static_assert(Int8ByteOf(64, 64, 16, 0) == 1024);
static_assert(Int8ByteOf(64, 128, 0, 64) == 2048);
static_assert(Int8ByteOf(64, 128, 32, 0) == uint64_t{32} * 128);
static_assert(Int8ByteOf(96, 128, 64, 64) ==
              uint64_t{64} * 128 + 2048);  // the last block has 32 channels
static_assert(Int8ByteOf(64, 3648, 0, 3584) == uint64_t{64} * 3584);  // a second block of inputs
static_assert(Int8ByteOf(64, 3648, 63, 3647) == uint64_t{64} * 3648 - 1);

Eligibility EligibleInt8(const PackRequest& request) {
  return KtTakes(kInt8Form, request, SignedByteCodes(request), ScalesPerChannelOrTensor(request));
}

uint64_t DivisibleInt8(const PackRequest& request) {
  return KtDivisible(kInt8Form, request);
}

TileCut CutInt8(const PackRequest& /*request*/) {
  return {.rows = kInt8Form.block_rows, .cols = kInt8Form.tile_inputs(), .strip_rows = 1};
}

uint64_t WeightBitInt8(const PackRequest& request, uint64_t n, uint64_t k) {
  return 8 * Int8ByteOf(request.n, request.k, n, k);
}

void PackInt8(const PackJob& job, std::span<const std::byte> codes, std::span<std::byte> packed) {
  TransposeUnitsFn* const transpose = TransposeUnits(kKtInputsPerWord);
  ForKtHalves(kInt8Form, job, [&](size_t from, size_t to) {
    transpose(&codes[from], job.panel.cols, kKtHalfRows, kInt8Form.tile_inputs() / kKtInputsPerWord,
              &packed[to], kKtWordStride);
  });
}

void UnpackInt8(const PackJob& job, std::span<const std::byte> packed, std::span<std::byte> codes) {
  TransposeUnitsFn* const transpose = TransposeUnits(kKtInputsPerWord);
  ForKtHalves(kInt8Form, job, [&](size_t to, size_t from) {
    transpose(&packed[from], kKtWordStride, kInt8Form.tile_inputs() / kKtInputsPerWord, kKtHalfRows,
              &codes[to], job.panel.cols);
  });
}

}  // namespace

constinit const Layout kKtAmxInt8 = {
    .id = "kt/amxint8",
    .version = 1,
    .target = "kt",
    .consumer = "kt_kernel_ext.moe.AMXInt8_MOE",
    .mirrors = "kt-kernel 0.7.2, operators/amx/la/amx_kernels.hpp (GemmKernel224Int8::BufferB)",
    .schemes =
        "w8a8 experts with dynamic symmetric activations, symmetric weights, channel or tensor",
    .constraints = "experts only, N % 32 = 0, K % 64 = 0, bf16 activations",
    .isa = "AVX-512 with BW; AMX or VNNI make it fast",
    .needs = {CpuFeature::kAvx512},
    .wants = {CpuFeature::kVnni},
    .address =
        "nb = n / 64 · 64, nbs = min(64, N − nb), kb = k / 3584 · 3584, kbs = min(3584, K − kb): "
        "byte nb · K + kb · nbs + (n − nb) / 32 · 32 · kbs + (k − kb) / 64 · 2048 + "
        "n % 32 / 16 · 1024 + k % 64 / 4 · 64 + n % 16 · 4 + k % 4",
    .notes =
        "the kernel without AMX takes a code of -128 for +128 where the activation is "
        "negative, so modules with such codes are refused",
    .fingerprint = "d7712732a327fd15f782b3e507eed06c",
    .for_experts = true,
    .whole_mixtures = true,
    .eligible = EligibleInt8,
    .weight = {.dtype = DType::kI8,
               .shape = {{"N · K", [](const PackRequest& r) { return r.n * r.k; }}},
               .by_outputs = DivisionRow::Along(0, {"32, 64 or N", DivisibleInt8}),
               .by_inputs = DivisionRow::Never(),
               .view = {symbol::kN, symbol::kK}},
    .scales = {.order = ParameterOrder::kChannels},
    .misread_code = MisreadCode{.code = -128,
                                .how = "as +128 where the activation is negative",
                                .expected = "codes from -127 to 127"},
    .is_named = IsNamedByKt,
    .tensor_name = KtTensorName,
    .cut = CutInt8,
    .weight_bit = WeightBitInt8,
    .place_weight = PlaceChannels,
    .pack_codes = PackInt8,
    .unpack_codes = UnpackInt8,
};

}  // namespace prepack
