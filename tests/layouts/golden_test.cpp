// The bytes of every layout against those of the real packers.

#include <cmath>
#include <filesystem>
#include <map>

#include "golden_file.h"
#include "prepack/base/isa.h"
#include "prepack/kernels/kernels.h"
#include "prepack/layouts/fingerprint.h"
#include "prepack/layouts/parameters.h"
#include "prepack/layouts/placement.h"
#include "prepack/layouts/table.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

// How many files there are per layout: a layout without golden bytes is not finished. The layouts
// that no op packs are plain or stated by the library itself (onednn_layouts_test.cpp).
const std::map<std::string, size_t> kFilesPerLayout = {
    {"vllm-cpu/wna16", 39},    {"vllm-cpu/int4-w4a8", 28},     {"vllm-cpu/int8-vnni", 11},
    {"vllm-cpu/fp8-vnni", 11}, {"vllm-cpu/fp8-w8a8-vnni4", 6}, {"vllm-cpu/fp8-w8a8-plain", 6},
    {"zentorch/woq", 32},      {"zentorch/da8w4", 15},         {"zentorch/int8", 10},
    {"zentorch/int8-dlp", 5},  {"vllm-arm/int4-w4a8", 17},     {"onednn/w8a8", 10},
    {"kt/amxint8", 6}};

Probe Canonical(const GoldenFile& golden) {
  return {.codes = golden.Panel(),
          .scales = golden.Scales(),
          .zero_points = golden.ZeroPoints(),
          .bias = golden.Has("bias") ? golden.Values<float>("bias") : std::vector<float>()};
}

// The name of a part in the files, which call all scales alike.
std::string GoldenName(const PartSpec& part) {
  if (part.role == PartRole::kScale) return "packed.weight_scale";
  return "packed." + std::string(part.name);
}

void CheckParts(const Layout& layout, const GoldenFile& golden) {
  const PackRequest request = golden.Request();
  const Probe probe = Canonical(golden);
  for (const PartSpec& part : layout.Parts(request)) {
    if (part.role > PartRole::kZeroPoint) continue;
    INFO("part " << part.name);
    const GoldenFile::Tensor& tensor = golden.At(GoldenName(part));
    CHECK(tensor.shape == part.shape);
    CHECK(tensor.dtype == part.dtype);
    // Golden scales may be zero or vanish in the narrower dtype on purpose; that is refused in a
    // checkpoint, but the bytes must still be right.
    CHECK(PackWhole(layout, request, probe, part.role) == tensor.bytes);
  }
  const bool has_zero_points = FindPart(layout.Parts(request), PartRole::kZeroPoint) != nullptr;
  CHECK(golden.Has("packed.weight_zero_point") == has_zero_points);
}

void CheckUnpack(const Layout& layout, const GoldenFile& golden) {
  const PackRequest request = golden.Request();
  const Probe probe = Canonical(golden);
  std::vector<std::byte> panel(probe.codes.size());
  layout.unpack_codes(WholeModule(request, probe), golden.At("packed.weight").bytes, panel);
  CHECK(panel == probe.codes);
  if (!golden.Has("packed.weight_zero_point")) return;
  std::vector<uint8_t> zero_points(probe.zero_points.size());
  UnpackZeroPoints(layout, request, request.n, golden.At("packed.weight_zero_point").bytes,
                   zero_points);
  CHECK(zero_points == probe.zero_points);
}

// Bias and sums, which are not the layout's own.
void CheckOtherParts(const Layout& layout, const GoldenFile& golden) {
  const PackRequest request = golden.Request();
  const std::vector<PartSpec> parts = layout.Parts(request);
  const PartSpec* bias = FindPart(parts, PartRole::kBias);
  if (bias != nullptr && !layout.HoldsParameters()) {
    CHECK(golden.At("packed.bias").dtype == bias->dtype);
  }
  const PartSpec* sum = FindPart(parts, PartRole::kWeightSum);
  CHECK(golden.Has("packed.weight_sum") == (sum != nullptr));
  if (sum == nullptr) return;
  std::vector<int32_t> sums(request.n);
  const std::vector<std::byte> codes = golden.Panel();
  KernelsFor(Isa::kScalar)
      .sum_rows(reinterpret_cast<const int8_t*>(codes.data()), request.k, request.n, request.k,
                sums.data());
  std::vector<std::byte> packed(request.n * sizeof(float));
  PackScaledSums(DType::kF32, sums, golden.Scales(), packed);
  CHECK(packed == golden.At("packed.weight_sum").bytes);
}

TEST_CASE("packed bytes equal those of the real packers") {
  std::map<std::string, size_t> files;
  for (const auto& path : GoldenFiles()) {
    const GoldenFile golden(path);
    INFO(path.filename());
    const Layout* layout = FindLayout(golden.layout());
    REQUIRE(layout != nullptr);
    CHECK(layout->eligible(golden.Request()).reason == "");
    for (const Isa isa : SupportedIsas()) {
      const ScopedIsa scope(isa);
      INFO(IsaName(isa));
      CheckParts(*layout, golden);
      CheckUnpack(*layout, golden);
    }
    CheckOtherParts(*layout, golden);
    ++files[golden.layout()];
  }
  CHECK(files == kFilesPerLayout);
}

// One layer of one expert of a file of fixtures/golden_experts.
void CheckExpert(const GoldenFile& golden, const std::string& layer, uint64_t expert) {
  const TensorShape& shape = golden.At("w" + layer).shape;
  const auto slice = [&](const std::string& name) {
    const std::vector<std::byte>& all = golden.At(name).bytes;
    const auto bytes = static_cast<std::ptrdiff_t>(all.size() / shape[0]);
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(expert) * bytes;
    return std::vector<std::byte>(begin, begin + bytes);
  };
  PackRequest request;
  request.scheme = {
      .code = CodeType::kF4E2M1, .granularity = Granularity::kGroup, .group_size = 32};
  request.n = shape[1];
  request.k = 2 * shape[2];
  request.experts = 1;
  if (golden.Has("b" + layer)) request.bias_dtype = DType::kF32;
  CHECK(kVllmMxfp4.eligible(request).reason == "");
  Probe probe{.codes = slice("w" + layer), .scales = {}, .zero_points = {}};
  for (const std::byte exponent : slice("s" + layer)) {
    probe.scales.push_back(std::ldexp(1.0F, std::to_integer<int>(exponent) - 127));
  }
  const std::vector<std::byte> weight = slice("packed.w" + layer);
  const std::vector<std::byte> scale = slice("packed.s" + layer);
  CHECK(PackWhole(kVllmMxfp4, request, probe, PartRole::kWeight) == weight);
  CHECK(PackWhole(kVllmMxfp4, request, probe, PartRole::kScale) == scale);
  RequireOk(PackScales(kVllmMxfp4, request, request.n, probe.scales, probe.codes));
  std::vector<std::byte> codes(weight.size());
  std::vector<float> scales(probe.scales.size());
  kVllmMxfp4.unpack_codes(WholeModule(request, probe), weight, codes);
  UnpackScales(kVllmMxfp4, request, request.n, scale, scales);
  CHECK(codes == slice("w" + layer));
  CHECK(scales == probe.scales);
  // The op takes all experts as one tensor, theirs one after the other. Its packer leaves the shape
  // of the scales as it was.
  const std::vector<PartSpec> parts = kVllmMxfp4.Parts(request);
  const TensorShape& scales_shape = golden.At("s" + layer).shape;
  CHECK(FindPart(parts, PartRole::kWeight)->shape == std::vector{shape[1], shape[2]});
  CHECK(FindPart(parts, PartRole::kScale)->shape ==
        std::vector{scales_shape[1] / 32, scales_shape[2], uint64_t{32}});
  CHECK(golden.At("packed.w" + layer).shape == shape);
  CHECK(golden.At("packed.s" + layer).shape == scales_shape);
}

TEST_CASE("packed bytes of experts equal those of the real packer") {
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(Fixture("golden_experts"))) {
    const GoldenFile golden(entry.path());
    INFO(entry.path().filename());
    for (const Isa isa : SupportedIsas()) {
      const ScopedIsa scope(isa);
      for (uint64_t expert = 0; expert < golden.At("w13").shape[0]; ++expert) {
        CheckExpert(golden, "13", expert);
        CheckExpert(golden, "2", expert);
      }
    }
    ++files;
  }
  CHECK(files == 15);
}

}  // namespace
}  // namespace prepack::testing
