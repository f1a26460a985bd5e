// Every version of every kernel writes the bytes of the scalar one, whatever the shape, and stays
// inside of its memory. Where those bytes lie is for the tests of each kernel.

#include <string>

#include "catch.h"
#include "kernels/edge_buffer.h"
#include "kernels/trials.h"
#include "prepack/base/isa.h"

namespace prepack::testing {
namespace {

TrialShape RandomShape(SplitMix64& random) {
  // Shapes around the smallest blocks, and larger ones.
  const size_t most = random.Below(4) == 0 ? 300 : 40;
  return {.rows = random.Below(most),
          .cols = random.Below(random.Below(4) == 0 ? 1200 : 4 * most),
          .in_gap = 4 * random.Below(17),
          .out_gap = 4 * random.Below(17),
          .option = random.Below(256)};
}

TEST_CASE("every version of every kernel writes what the scalar one writes") {
  SplitMix64 random(51);
  for (const KernelTrials& kernel : kKernelTrials) {
    for (int run = 0; run < 60; ++run) {
      const TrialShape shape = RandomShape(random);
      CAPTURE(kernel.kernel, shape.rows, shape.cols, shape.in_gap, shape.out_gap, shape.option);
      const Trial trial = kernel.make(shape);
      const EdgeBuffer in(trial.in_bytes, random);
      trial.prepare(in.data());
      const EdgeBuffer expected(trial.out_bytes);
      trial.run(KernelsFor(Isa::kScalar), in.data(), expected.data());
      for (const Isa isa : SupportedIsas()) {
        INFO(IsaName(isa));
        const EdgeBuffer found(trial.out_bytes);
        trial.run(KernelsFor(isa), in.data(), found.data());
        REQUIRE(found.Holds(expected.span()));
      }
    }
  }
}

#if defined(__x86_64__)

TEST_CASE("A level without a version of its own has that of the level below") {
  CHECK(KernelsFor(Isa::kAvx512).transpose_bytes == KernelsFor(Isa::kAvx2).transpose_bytes);
  CHECK(KernelsFor(Isa::kAvx512Vbmi).sum_rows == KernelsFor(Isa::kAvx512).sum_rows);
  CHECK(KernelsFor(Isa::kAvx512).sum_rows != KernelsFor(Isa::kAvx2).sum_rows);
  for (const size_t unit : Sizes{1, 2, 4, 8}) {
    CHECK(TransposeUnits(KernelsFor(Isa::kAvx2), unit) !=
          TransposeUnits(KernelsFor(Isa::kScalar), unit));
  }
}

#elif defined(__aarch64__)

TEST_CASE("NEON has a version of every kernel") {
#define PREPACK_KERNEL(type, function, member, avx512, avx512vbmi) \
  CHECK(KernelsFor(Isa::kNeon).member != KernelsFor(Isa::kScalar).member);
#include "prepack/kernels/kernels.inc"
#undef PREPACK_KERNEL
}

#endif

}  // namespace
}  // namespace prepack::testing
