#include "prepack/gemm/onednn/descriptor.h"

#include <cstdlib>

#include "catch.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

PackRequest Request(uint64_t n, uint64_t k, bool dynamic, bool symmetric) {
  PackRequest request;
  request.scheme = {
      .code = CodeType::kS8,
      .bits = 8,
      .granularity = Granularity::kChannel,
      .group_size = k,
      .symmetric = true,
      .activations = {
          .type = ActivationType::kInt, .bits = 8, .symmetric = symmetric, .dynamic = dynamic}};
  request.n = n;
  request.k = k;
  return request;
}

// Limits the CPU that oneDNN sees, if no test of this process has asked it anything before.
OneDnnAnswer AskAsAvx2(const PackRequest& request) {
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);  // NOLINT(concurrency-mt-unsafe)
  return Value(AskOneDnn(request));
}

TEST_CASE("oneDNN asks for plain weights on CPUs with AVX2, whatever the activations") {
  for (const DType type : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const auto& [dynamic, symmetric] : {std::pair{true, true}, std::pair{true, false},
                                             std::pair{false, true}, std::pair{false, false}}) {
      for (const auto& [n, k] : {std::pair{1U, 1U}, std::pair{33U, 129U}, std::pair{256U, 512U}}) {
        CAPTURE(n, k, dynamic, symmetric, DTypeName(type));
        PackRequest request = Request(n, k, dynamic, symmetric);
        request.activation_dtype = type;
        const OneDnnAnswer answer = AskAsAvx2(request);
        if (answer.origin.isa == "0x7") CHECK(answer.weights_desc == PlainDesc(k, n));
        CHECK(CheckBlockedDesc(answer.weights_desc, k, n).ok());
      }
    }
  }
}

TEST_CASE("the answer says which oneDNN gave it, and what would run") {
  const OneDnnAnswer dynamic = AskAsAvx2(Request(64, 128, true, true));
  CHECK(dynamic.origin.version.starts_with("3."));
  CHECK(dynamic.origin.hash.size() == 40);
  CHECK(dynamic.origin.isa.starts_with("0x"));
  CHECK(dynamic.origin.probe_m == 128);
  // The f32 result that vLLM asks for with dynamic activations has a fast kernel everywhere.
  CHECK_FALSE(dynamic.origin.IsReference());
  const OneDnnAnswer fixed = AskAsAvx2(Request(64, 128, false, true));
  CHECK(fixed.origin.IsReference() == fixed.origin.implementation.starts_with("ref"));
  if (fixed.origin.isa == "0x7") CHECK(fixed.origin.implementation == "ref_int8:any");
}

TEST_CASE("what oneDNN has no primitive for is an error that says what else there is") {
  const PackRequest request = Request(UINT64_MAX, 128, true, true);
  const Status status = AskOneDnn(request).status();
  CheckError(status, ErrorKind::kUnavailable, "oneDNN: ");
  CheckError(status, ErrorKind::kUnavailable, "--onednn-form blocked and --onednn-form plain");
}

}  // namespace
}  // namespace prepack::testing
