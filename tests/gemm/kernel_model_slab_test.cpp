// Models that are given a slab of the input channels say what they say of all of them with zeros
// everywhere else.

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "gemm/kernel_model_file.h"
#include "prepack/base/isa.h"
#include "prepack/gemm/kernel_model.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

// Slabs of every place: at the beginning, inside, and at the end, whole or not.
std::vector<InputSlab> SlabsOf(const PackedOperands& packed) {
  const uint64_t unit = SlabUnit(packed.k, packed.group_size);
  std::vector<InputSlab> slabs;
  if (packed.k <= unit) return slabs;
  slabs.push_back({.k0 = 0, .inputs = unit});
  slabs.push_back({.k0 = unit, .inputs = packed.k - unit});
  if (packed.k > 2 * unit) slabs.push_back({.k0 = unit, .inputs = unit});
  return slabs;
}

// x with zeros outside of the slab, in full and as models take a slab.
struct SlabInput {
  std::vector<float> padded;
  std::vector<float> columns;
};

SlabInput InputOf(const KernelModelFile& golden, const InputSlab& slab) {
  const uint64_t k = golden.packed.k;
  SlabInput input;
  input.padded.resize(golden.x.size());
  for (uint64_t m = 0; m < golden.input.m; ++m) {
    for (uint64_t i = 0; i < slab.inputs; ++i) {
      // The last of every three rows is nearly all zero inside, too.
      const bool kept = m % 3 != 2 || i % 61 == 5;
      const float x = kept ? golden.x[m * k + slab.k0 + i] : 0;
      input.padded[m * k + slab.k0 + i] = x;
      input.columns.push_back(x);
    }
    input.columns.push_back(0);
  }
  return input;
}

std::vector<float> PredictWith(const KernelModelFile& golden, const ModelInput& input) {
  const auto model = Value(MakeKernelModel(golden.file.layout(), golden.packed, input));
  std::vector<float> y(input.m * golden.packed.n);
  RequireOk(model->Run(0, y));
  return y;
}

TEST_CASE("a slab of input channels gives what zeros outside of it give, to the bit") {
  std::set<std::string> layouts;
  size_t slabs = 0;
  for (const auto& path : GoldenFiles()) {
    const KernelModelFile golden(path);
    INFO("file " << golden.name);
    for (const InputSlab& slab : SlabsOf(golden.packed)) {
      INFO(slab.inputs << " from " << slab.k0);
      const SlabInput parts = InputOf(golden, slab);
      for (const Isa isa : SupportedIsas()) {
        const ScopedIsa scope(isa);
        ModelInput input = golden.input;
        input.x = parts.padded;
        const std::vector<float> expected = PredictWith(golden, input);
        input.x = parts.columns;
        input.slab = slab;
        CHECK(std::ranges::equal(PredictWith(golden, input), expected));
      }
      layouts.insert(golden.file.layout());
      ++slabs;
    }
  }
  CHECK(layouts.size() == 15);
  CHECK(slabs == 305);
}

TEST_CASE("activations of a slab are those of its columns") {
  for (const char* layout : {"vllm-cpu/int8-vnni", "vllm-cpu/fp8-w8a8-plain", "zentorch/woq"}) {
    size_t files = 0;
    for (const auto& path : GoldenFilesOf(layout)) {
      const KernelModelFile golden(path);
      for (const InputSlab& slab : SlabsOf(golden.packed)) {
        INFO("file " << golden.name);
        const SlabInput parts = InputOf(golden, slab);
        ModelInput input = golden.input;
        input.x = parts.padded;
        const auto whole = AllActivations(*Value(MakeKernelModel(layout, golden.packed, input)),
                                          input.m, golden.packed.k);
        input.x = parts.columns;
        input.slab = slab;
        const auto found = AllActivations(*Value(MakeKernelModel(layout, golden.packed, input)),
                                          input.m, slab.inputs + 1);
        for (uint64_t m = 0; m < input.m; ++m) {
          for (uint64_t i = 0; i < slab.inputs; ++i) {
            CHECK(found[m * (slab.inputs + 1) + i] == whole[m * golden.packed.k + slab.k0 + i]);
          }
          CHECK(found[(m + 1) * (slab.inputs + 1) - 1] == 0);
        }
        ++files;
      }
    }
    CHECK(files != 0);
  }
}

TEST_CASE("slabs that models cannot be given are refused") {
  const std::vector<float> x(600);
  PackedOperands packed;
  packed.n = 16;
  packed.k = 288;
  packed.group_size = 96;
  const auto fails = [&](InputSlab slab, size_t columns, const char* text) {
    const ModelInput input{
        .m = 1, .dtype = DType::kBF16, .x = std::span(x).first(columns), .slab = slab};
    CheckError(MakeKernelModel("zentorch/woq", packed, input).status(), ErrorKind::kUsage, text);
  };
  CHECK(SlabUnit(packed.k, packed.group_size) == 384);
  fails({.k0 = 128, .inputs = 160}, 161, "(found 160 from 128 on, expected multiples of 384");
  fails({.k0 = 0, .inputs = 128}, 129, "a model cannot take this slab of input channels");
  fails({.k0 = 384, .inputs = 1}, 2, "a model cannot take this slab of input channels");
  fails({.k0 = 0, .inputs = 0}, 1, "a model cannot take this slab of input channels");
  packed.group_size = 288;
  CHECK(SlabUnit(packed.k, packed.group_size) == 128);
  fails({.k0 = 128, .inputs = 288}, 289, "(found 288 from 128 on, expected multiples of 128");
  fails({.k0 = 128, .inputs = 160}, 160, "x: the size does not match the shape");
  packed.group_size = 256;
  CHECK(SlabUnit(packed.k, packed.group_size) == 128);
}

TEST_CASE("what stands for the input channels outside of a slab is zero") {
  std::vector<float> x(129);
  x.back() = 1;
  PackedOperands packed;
  packed.n = 16;
  packed.k = 256;
  packed.group_size = 256;
  const ModelInput input{
      .m = 1, .dtype = DType::kBF16, .x = x, .slab = InputSlab{.k0 = 0, .inputs = 128}};
  CheckError(MakeKernelModel("zentorch/woq", packed, input).status(), ErrorKind::kUsage,
             "an input channel outside of the slab is not zero (found 1)");
}

}  // namespace
}  // namespace prepack::testing
