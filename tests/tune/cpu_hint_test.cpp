#include "prepack/tune/cpu_hint.h"

#include <string>

#include "catch.h"
#include "prepack/convert/scheme_choice.h"
#include "prepack/packed/packed_model.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

const CpuFeatures kOld = {CpuFeature::kAvx2};
const CpuFeatures kVnniServer = {CpuFeature::kAvx2, CpuFeature::kAvx512, CpuFeature::kVnni,
                                 CpuFeature::kBf16};

std::string HintFor(const std::string& name, PlanOptions options, const CpuFeatures& features) {
  const Checkpoint checkpoint = Value(Checkpoint::Open(Fixture("checkpoints") / name));
  const QuantizedModel model = Value(ReadSourceModel(checkpoint, {}));
  return CpuHint(checkpoint, model, options, features);
}

TEST_CASE("a reference implementation is named where another scheme has a kernel") {
  const std::string hint = HintFor("ct-w4a8", {.target = "onednn"}, kOld);
  CHECK(
      hint.starts_with("onednn/w4a8 has only a slow reference implementation on this CPU (wants "
                       "AVX-512, VNNI); --scheme w4a16 gives onednn/w4a16, which has a kernel "
                       "for it. To measure both: prepack tune "));
  CHECK(hint.ends_with("ct-w4a8 --target onednn"));
  CHECK(HintFor("ct-w4a8", {.target = "onednn"}, kVnniServer).empty());
}

TEST_CASE("what does not run at all is named where another scheme runs") {
  const CpuFeatures no_vnni = {CpuFeature::kAvx2, CpuFeature::kAvx512, CpuFeature::kBf16};
  const std::string hint = HintFor("ct-w4a8", {.target = "vllm-cpu"}, no_vnni);
  CHECK(
      hint.starts_with("vllm-cpu/int4-w4a8 does not run on this CPU (needs VNNI); --scheme w4a16 "
                       "gives vllm-cpu/wna16, which has a kernel for it."));
  // With AVX2 alone, neither runs, and codes of 4 bits have no other.
  for (const char* fixture : {"ct-w4a8", "ct-w4a16-g128-sym"}) {
    CHECK_THAT(HintFor(fixture, {.target = "vllm-cpu"}, kOld),
               Catch::Contains("; --scheme bf16 gives plain/bf16, which has a kernel for it."));
  }
}

TEST_CASE("an instruction for 8-bit integers that is left idle is named") {
  const std::string hint = HintFor("ct-w4a16-g128-sym", {.target = "vllm-cpu"}, kVnniServer);
  CHECK(
      hint.starts_with("vllm-cpu/wna16 leaves this CPU's VNNI idle; --scheme w4a8 gives "
                       "vllm-cpu/int4-w4a8, which multiplies 8-bit integers with it and may be "
                       "much faster, at some accuracy. To measure both: prepack tune "));
  CHECK(HintFor("ct-w4a16-g128-sym", {.target = "onednn"}, kVnniServer)
            .starts_with("onednn/w4a16 leaves this CPU's VNNI idle; --scheme w4a8"));
  CHECK(HintFor("ct-w4a16-g128-sym", {.target = "onednn"}, kOld).empty());
}

TEST_CASE("there is nothing to say of what the user chose, and of what tune cannot measure") {
  PlanOptions chosen{.target = "vllm-cpu"};
  chosen.schemes = {Value(ParseSchemeChoice("w4a16"))};
  CHECK(HintFor("ct-w4a16-g128-sym", chosen, kVnniServer).empty());
  CHECK(HintFor("ct-w4a16-g128-sym", {.target = "gptq"}, kVnniServer).empty());
  CHECK(HintFor("ar-w3-sym", {.target = "vllm-cpu"}, kVnniServer).empty());
  CHECK(HintFor("ct-w8a8-dynamic", {.target = "vllm-cpu"}, kVnniServer).empty());
}

}  // namespace
}  // namespace prepack::testing
