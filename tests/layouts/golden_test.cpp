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
const std::map<std::string, size_t> kFilesPerLayout = {{"vllm-cpu/wna16", 39},
                                                       {"vllm-cpu/int4-w4a8", 28},
                                                       {"vllm-cpu/int8-vnni", 11},
                                                       {"vllm-cpu/fp8-vnni", 11},
                                                       {"vllm-cpu/fp8-w8a8-vnni4", 6},
                                                       {"vllm-cpu/fp8-w8a8-plain", 6},
                                                       {"zentorch/woq", 32},
                                                       {"zentorch/da8w4", 15},
                                                       {"zentorch/int8", 10},
                                                       {"zentorch/int8-dlp", 5},
                                                       {"vllm-arm/int4-w4a8", 17},
                                                       {"vllm-arm/int8-plain", 10},
                                                       {"onednn/w8a8", 10},
                                                       {"kt/amxint8", 6},
                                                       {"kt/amxint4", 6}};

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
class GoldenExpert {
 public:
  GoldenExpert(const GoldenFile& golden, std::string layer, uint64_t expert)
      : golden_(golden), layer_(std::move(layer)), expert_(expert) {}

  std::vector<std::byte> Slice(const std::string& name) const {
    const std::vector<std::byte>& all = golden_.At(name + layer_).bytes;
    const auto bytes = static_cast<std::ptrdiff_t>(all.size() / golden_.At("w13").shape[0]);
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(expert_) * bytes;
    return std::vector<std::byte>(begin, begin + bytes);
  }

  PackRequest Request() const {
    const GoldenFile::Tensor& weight = golden_.At("w" + layer_);
    PackRequest request;
    request.n = weight.shape[1];
    request.k = weight.shape[2] * (weight.dtype == DType::kU8 ? 2 : 1);
    request.scheme = SchemeOf(request.k);
    request.stored_scale_dtype = DType::kF32;
    request.experts = 1;
    if (golden_.Has("x")) request.activation_dtype = golden_.At("x").dtype;
    if (golden_.Has("b" + layer_)) request.bias_dtype = golden_.At("b" + layer_).dtype;
    return request;
  }

  Probe Canonical() const {
    Probe probe{.codes = Slice("w"), .scales = {}, .zero_points = {}};
    if (golden_.Has("s" + layer_)) probe.scales = Scales();
    if (golden_.layout() == "vllm-arm/int4-w4a8" && golden_.Has("b" + layer_)) {
      probe.bias = AsFloats(Slice("b"));
    }
    return probe;
  }

  // What stands in the part of scales: the packer's own, or scales that none packs.
  std::vector<std::byte> PackedScales() const {
    return Slice(golden_.Has("packed.s" + layer_) ? "packed.s" : "s");
  }

 private:
  static std::vector<float> AsFloats(const std::vector<std::byte>& bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    return values;
  }

  std::vector<float> Scales() const {
    const std::vector<std::byte> bytes = Slice("s");
    if (golden_.At("s" + layer_).dtype == DType::kF32) return AsFloats(bytes);
    std::vector<float> scales;
    for (const std::byte exponent : bytes) {
      scales.push_back(std::ldexp(1.0F, std::to_integer<int>(exponent) - 127));
    }
    return scales;
  }

  Scheme SchemeOf(uint64_t k) const {
    if (golden_.layout() == "vllm-cpu/mxfp4") {
      return {.code = CodeType::kF4E2M1, .granularity = Granularity::kGroup, .group_size = 32};
    }
    if (golden_.layout() == "vllm-arm/bf16-neon") {
      return {.code = CodeType::kBF16,
              .bits = 16,
              .granularity = Granularity::kTensor,
              .group_size = k};
    }
    Scheme scheme;
    scheme.code = golden_.At("w13").dtype == DType::kI8 ? CodeType::kS8 : CodeType::kU4;
    scheme.bits = CodeBits(scheme.code);
    scheme.group_size = std::stoull(golden_.Metadata("group_size"));
    scheme.granularity = scheme.group_size == 0 ? Granularity::kChannel : Granularity::kGroup;
    if (scheme.group_size == 0) scheme.group_size = k;
    scheme.activations = {.type = ActivationType::kInt,
                          .bits = 8,
                          .symmetric = true,
                          .dynamic = true,
                          .granularity = ActivationGranularity::kToken,
                          .group_size = 0};
    return scheme;
  }

  const GoldenFile& golden_;
  std::string layer_;
  uint64_t expert_;
};

void CheckExpert(const GoldenFile& golden, const std::string& layer, uint64_t expert) {
  const GoldenExpert slices(golden, layer, expert);
  const Layout& layout = *FindLayout(golden.layout());
  const PackRequest request = slices.Request();
  CHECK(layout.eligible(request).reason == "");
  const Probe probe = slices.Canonical();
  const std::vector<std::byte> weight = slices.Slice("packed.w");
  CHECK(PackWhole(layout, request, probe, PartRole::kWeight) == weight);
  std::vector<std::byte> codes(probe.codes.size());
  layout.unpack_codes(WholeModule(request, probe), weight, codes);
  CHECK(codes == probe.codes);
  // The op takes all experts as one tensor, theirs one after the other.
  const std::vector<PartSpec> parts = layout.Parts(request);
  std::vector<uint64_t> stacked = FindPart(parts, PartRole::kWeight)->shape;
  stacked.insert(stacked.begin(), golden.At("w13").shape[0]);
  CHECK(golden.At("packed.w" + layer).shape == stacked);
  const PartSpec* scale_part = FindPart(parts, PartRole::kScale);
  if (scale_part == nullptr) return;
  // The packer of MXFP4 leaves the shape of its scales as it was.
  if (golden.Has("packed.s" + layer)) {
    CHECK(scale_part->shape == std::vector{request.n / 32, request.groups(), uint64_t{32}});
    CHECK(golden.At("packed.s" + layer).shape == golden.At("s" + layer).shape);
  }
  const std::vector<std::byte> scale = slices.PackedScales();
  CHECK(PackWhole(layout, request, probe, PartRole::kScale) == scale);
  std::vector<float> scales(probe.scales.size());
  UnpackScales(layout, request, request.n, scale, scales);
  CHECK(scales == probe.scales);
}

TEST_CASE("packed bytes of experts equal those of the real packer") {
  std::map<std::string, size_t> files;
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
    ++files[golden.layout()];
  }
  CHECK(files == std::map<std::string, size_t>{{"vllm-cpu/mxfp4", 15},
                                               {"vllm-arm/int4-w4a8", 11},
                                               {"vllm-arm/int8-neon", 8},
                                               {"vllm-arm/bf16-neon", 6}});
}

}  // namespace
}  // namespace prepack::testing
