// The bytes of every layout against those of the real packers.

#include <map>

#include "base/isa.h"
#include "golden_file.h"
#include "layouts/table.h"

namespace prepack {
namespace {

using testing::GoldenFile;
using testing::GoldenFiles;

// How many files there are per layout: a layout without golden bytes is not finished.
const std::map<std::string, size_t> kFilesPerLayout = {{"vllm-cpu/wna16", 39},
                                                       {"zentorch/woq", 32}};

StripPanel Whole(const PackRequest& request) {
  return {.rows = request.n, .k0 = 0, .cols = request.k};
}

struct Packed {
  std::vector<std::byte> weight;
  std::vector<std::byte> scale;
  std::vector<std::byte> zero_point;
};

Packed Pack(const Layout& layout, const GoldenFile& golden, Isa isa) {
  const PackRequest request = golden.Request();
  Packed packed;
  const auto room = [&](PartRole role) {
    return std::vector<std::byte>(layout.place(request, role, 0, request.n).bytes());
  };
  packed.weight = room(PartRole::kWeight);
  layout.pack_codes(request, isa, Whole(request), golden.Panel(), packed.weight);
  packed.scale = room(PartRole::kScale);
  const std::vector<float> scales = golden.Values<float>("scales");
  // Golden scales may be zero or vanish in the narrower dtype on purpose; that is refused in a
  // checkpoint, but the bytes written for the others must still be right.
  static_cast<void>(layout.pack_scales(request, request.n, scales, packed.scale));
  if (!request.scheme.symmetric) {
    packed.zero_point = room(PartRole::kZeroPoint);
    layout.pack_zero_points(request, request.n, golden.Values<uint8_t>("zero_points"),
                            packed.zero_point);
  }
  return packed;
}

void CheckUnpack(const Layout& layout, const GoldenFile& golden, Isa isa) {
  const PackRequest request = golden.Request();
  std::vector<std::byte> panel(golden.Panel().size());
  layout.unpack_codes(request, isa, Whole(request), golden.At("packed.weight").bytes, panel);
  CHECK(panel == golden.Panel());
  if (request.scheme.symmetric) return;
  std::vector<uint8_t> zero_points(request.n * request.groups());
  layout.unpack_zero_points(request, request.n, golden.At("packed.weight_zero_point").bytes,
                            zero_points);
  CHECK(zero_points == golden.Values<uint8_t>("zero_points"));
}

void CheckParts(const Layout& layout, const GoldenFile& golden) {
  const PackRequest request = golden.Request();
  for (const PartSpec& part : layout.parts(request)) {
    INFO("part " << part.name);
    const GoldenFile::Tensor& tensor = golden.At("packed." + std::string(part.name));
    CHECK(tensor.shape == part.shape);
    // One file holds f32 scales, which the op takes too; we always write bf16.
    if (part.role != PartRole::kScale || tensor.dtype != DType::kF32) {
      CHECK(tensor.dtype == part.dtype);
    }
  }
  CHECK(golden.Has("packed.weight_zero_point") == !request.scheme.symmetric);
}

TEST_CASE("packed bytes equal those of the real packers") {
  std::map<std::string, size_t> files;
  for (const auto& path : GoldenFiles()) {
    const GoldenFile golden(path);
    INFO(path.filename());
    const Layout* layout = FindLayout(golden.layout());
    REQUIRE(layout != nullptr);
    CHECK(layout->eligible(golden.Request()).reason == "");
    CheckParts(*layout, golden);
    for (const Isa isa : SupportedIsas()) {
      INFO(IsaName(isa));
      const Packed packed = Pack(*layout, golden, isa);
      CHECK(packed.weight == golden.At("packed.weight").bytes);
      if (golden.At("packed.weight_scale").dtype != DType::kF32) {
        CHECK(packed.scale == golden.At("packed.weight_scale").bytes);
      }
      if (golden.Has("packed.weight_zero_point")) {
        CHECK(packed.zero_point == golden.At("packed.weight_zero_point").bytes);
      }
      CheckUnpack(*layout, golden, isa);
    }
    ++files[golden.layout()];
  }
  CHECK(files == kFilesPerLayout);
  for (const Layout& layout : AllLayouts()) CHECK(files.contains(std::string(layout.id)));
}

}  // namespace
}  // namespace prepack
