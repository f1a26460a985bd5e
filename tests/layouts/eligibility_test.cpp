#include <functional>

#include "catch.h"
#include "layouts/table.h"

namespace prepack {
namespace {

PackRequest Good() {
  PackRequest request;
  request.scheme.group_size = 64;
  request.n = 64;
  request.k = 128;
  return request;
}

struct Case {
  std::string reason;  // empty: eligible
  std::function<void(PackRequest&)> edit;
};

void CheckCases(std::string_view id, const std::vector<Case>& cases) {
  const Layout* layout = FindLayout(id);
  REQUIRE(layout != nullptr);
  for (const Case& c : cases) {
    PackRequest request = Good();
    c.edit(request);
    const Eligibility verdict = layout->eligible(request);
    CHECK(verdict.reason == c.reason);
    CHECK(verdict.ok == c.reason.empty());
  }
}

TEST_CASE("vllm-cpu/wna16 says what it takes and why not") {
  CheckCases("vllm-cpu/wna16",
             {{"", [](PackRequest&) {}},
              {"", [](PackRequest& r) { r.scheme.symmetric = false; }},
              {"", [](PackRequest& r) { r.scheme.group_size = 2; }},
              {"", [](PackRequest& r) { r.scheme.group_size = r.k; }},
              {"", [](PackRequest& r) { r.activation_dtype = DType::kF16; }},
              {"", [](PackRequest& r) { r.bias_dtype = DType::kBF16; }},
              {"N = 80 is not a multiple of 32: the kernel takes 32 output channels at a time",
               [](PackRequest& r) { r.n = 80; }},
              {"K = 144 is not a multiple of 32: the kernel takes 32 input channels at a time",
               [](PackRequest& r) { r.k = 144; }},
              {"groups of 48 do not divide K = 128: the kernel takes K / G as the group size, so "
               "that the consumer would load it and multiply with the wrong scales",
               [](PackRequest& r) { r.scheme.group_size = 48; }},
              {"the group size is odd: groups must hold an even number of input channels",
               [](PackRequest& r) { r.scheme.group_size = 1; }},
              {"activations are F32: the kernel takes BF16 or F16 only (--dtype chooses)",
               [](PackRequest& r) { r.activation_dtype = DType::kF32; }},
              {"", [](PackRequest& r) { r.bias_dtype = DType::kF32; }},
              {"the bias is I8: it cannot be converted to what the kernel takes",
               [](PackRequest& r) { r.bias_dtype = DType::kI8; }}});
}

TEST_CASE("zentorch/woq says what it takes and why not") {
  CheckCases("zentorch/woq",
             {{"", [](PackRequest&) {}},
              {"", [](PackRequest& r) { r.scheme.symmetric = false; }},
              {"", [](PackRequest& r) { r.n = 1; }},
              {"", [](PackRequest& r) { r.k = 40, r.scheme.group_size = 40; }},
              {"", [](PackRequest& r) { r.scheme.group_size = 1; }},
              {"", [](PackRequest& r) { r.bias_dtype = DType::kF32; }},
              {"K = 132 is not a multiple of 8: eight codes share a 32-bit word",
               [](PackRequest& r) { r.k = 132; }},
              {"groups of 48 do not divide K = 128: the kernel takes K / G as the group size, so "
               "that the consumer would load it and multiply with the wrong scales",
               [](PackRequest& r) { r.scheme.group_size = 48; }},
              {"activations are F16: the kernel takes BF16 only (--dtype chooses)",
               [](PackRequest& r) { r.activation_dtype = DType::kF16; }},
              {"", [](PackRequest& r) { r.bias_dtype = DType::kF16; }}});
}

}  // namespace
}  // namespace prepack
