// Names of kt-kernel, and what its packer and its loader's folders hold (fixtures/golden_kt).

#include <array>
#include <string>
#include <vector>

#include "catch.h"
#include "golden_file.h"
#include "prepack/layouts/fingerprint.h"
#include "prepack/layouts/parameters.h"
#include "prepack/layouts/table.h"
#include "status_matchers.h"

namespace prepack::testing {
namespace {

constexpr std::array kKtLayouts = {&kKtAmxInt8, &kKtAmxInt4};

const PartSpec kKtWeight{.role = PartRole::kWeight, .name = "weight", .shape = {}};
const PartSpec kKtScale{.role = PartRole::kScale, .name = "weight_scale", .shape = {}};

TEST_CASE("kt-kernel's names of the tensors of an expert") {
  struct Row {
    const char* module;
    const char* tensor;
  };
  for (const Row& row : {
           Row{"model.layers.3.mlp.experts.17.gate_proj", "blk.3.ffn_gate_exps.17.numa.0."},
           Row{"model.layers.0.mlp.experts.0.up_proj", "blk.0.ffn_up_exps.0.numa.0."},
           Row{"model.layers.60.mlp.experts.255.down_proj", "blk.60.ffn_down_exps.255.numa.0."},
           Row{"language_model.model.layers.1.mlp.experts.2.down_proj.numa.1",
               "blk.1.ffn_down_exps.2.numa.1."},
           Row{"model.layers.2.block_sparse_moe.experts.4.w1", "blk.2.ffn_gate_exps.4.numa.0."},
           Row{"model.layers.2.block_sparse_moe.experts.4.w3", "blk.2.ffn_up_exps.4.numa.0."},
           Row{"model.layers.2.block_sparse_moe.experts.4.w2.numa.3",
               "blk.2.ffn_down_exps.4.numa.3."},
       }) {
    INFO(row.module);
    for (const Layout* layout : kKtLayouts) {
      CHECK(layout->IsNamed(row.module));
      CHECK(layout->TensorName(row.module, kKtWeight) == std::string(row.tensor) + "weight");
      CHECK(layout->TensorName(row.module, kKtScale) == std::string(row.tensor) + "scale");
    }
  }
}

TEST_CASE("modules that kt-kernel has no name for") {
  for (const std::string_view module : {
           "model.layers.3.mlp.down_proj",
           "model.layers.3.mlp.shared_experts.down_proj",
           "model.layers.3.mlp.experts.17.router",
           "model.layers.3.mlp.experts.gate_up_proj.17",
           "mtp.layers.0.mlp.experts.1.up_proj",
           "model.layers.3.mlp.experts.17.up_proj.numa",
           "model.layers.3.mlp.experts.17.up_proj.numa.x",
           "model.layers.3.mlp.experts.17.up_proj.numa.0.numa.1",
           "experts.1.up_proj",
           "",
       }) {
    INFO(module);
    for (const Layout* layout : kKtLayouts) {
      CHECK_FALSE(layout->IsNamed(module));
      CHECK(layout->TensorName(module, kKtScale) == std::string(module) + ".weight_scale");
    }
  }
}

PackRequest ExpertOf(const Layout& layout, uint64_t n, uint64_t k) {
  PackRequest request;
  request.scheme.code = &layout == &kKtAmxInt8 ? CodeType::kS8 : CodeType::kU4;
  request.scheme.bits = CodeBits(request.scheme.code);
  request.scheme.granularity = Granularity::kChannel;
  request.scheme.group_size = k;
  request.scheme.activations = {.type = ActivationType::kInt, .bits = 8};
  request.n = n;
  request.k = k;
  request.stored_scale_dtype = DType::kF32;
  request.experts = 1;
  return request;
}

// Columns [k0, k0 + cols) of rows [n0, n0 + rows) of codes in a byte each, as a panel.
std::vector<std::byte> Window(CodeType code, const GoldenFile::Tensor& codes,
                              const PanelRange& range) {
  std::vector<std::byte> window;
  for (uint64_t n = range.n0; n < range.n0 + range.rows; ++n) {
    for (uint64_t k = range.k0; k < range.k0 + range.cols; ++k) {
      const std::byte value = codes.bytes[n * codes.shape[1] + k];
      const bool second = IsNibble(code) && k % 2 != 0;
      if (second) {
        window.back() |= value << 4;
      } else {
        window.push_back(value);
      }
    }
  }
  return window;
}

// kt-kernel's converter cuts gate and up by their output channels, down by its input channels.
PanelRange ShareOf(const TensorShape& shape, bool down, uint64_t node, uint64_t nodes) {
  const auto [n, k] = std::pair(shape[0], shape[1]);
  if (down) return {.n0 = 0, .rows = n, .k0 = node * (k / nodes), .cols = k / nodes};
  return {.n0 = node * (n / nodes), .rows = n / nodes, .k0 = 0, .cols = k};
}

// The layer of an expert, and the share of it that a node has.
void CheckShare(const Layout& layout, const GoldenFile& source, const GoldenFile& golden,
                const std::string& layer, const std::pair<uint64_t, uint64_t>& node_of) {
  const auto [node, nodes] = node_of;
  const GoldenFile::Tensor& codes = source.At(layer + ".codes");
  const std::vector<float> scales = source.Values<float>(layer + ".scales");
  const PanelRange share = ShareOf(codes.shape, layer == "down", node, nodes);
  const PackRequest request = ExpertOf(layout, share.rows, share.cols);
  REQUIRE(layout.Takes(request).reason == "");
  const auto first = scales.begin() + static_cast<std::ptrdiff_t>(share.n0);
  const Probe probe{.codes = Window(request.scheme.code, codes, share),
                    .scales = {first, first + static_cast<std::ptrdiff_t>(share.rows)},
                    .zero_points = {}};
  const std::string module =
      "model.layers.0.mlp.experts.0." + layer + "_proj.numa." + std::to_string(node);
  INFO(module << " of " << nodes);
  for (const PartSpec& part : layout.Parts(request)) {
    CHECK(PackWhole(layout, request, probe, part.role) ==
          golden.At(layout.TensorName(module, part)).bytes);
  }
}

TEST_CASE("a whole expert over NUMA nodes is what kt-kernel's converter writes") {
  for (const Layout* layout : kKtLayouts) {
    const std::string files = "golden_kt/kt_" + std::string(layout->id.substr(3)) + "_expert-numa-";
    const GoldenFile source(Fixture(files + "1.safetensors"));
    for (const uint64_t nodes : {1U, 2U}) {
      const GoldenFile golden(Fixture(files + std::to_string(nodes) + ".safetensors"));
      for (const std::string layer : {"gate", "up", "down"}) {
        for (uint64_t node = 0; node < nodes; ++node) {
          CheckShare(*layout, source, golden, layer, {node, nodes});
        }
      }
    }
  }
}

TEST_CASE("kt/amxint4 stores sixteenths of scales, or refuses them") {
  const PackRequest request = ExpertOf(kKtAmxInt4, 32, 128);
  std::vector<float> scales(request.n, 3.0F);
  scales[5] = -0x1p-120F;
  std::vector<float> packed(request.n);
  const auto bytes = std::as_writable_bytes(std::span(packed));
  RequireOk(PackScales(kKtAmxInt4, request, request.n, scales, bytes));
  CHECK(packed[0] == 0.1875F);
  CHECK(packed[5] == -0x1p-124F);
  std::vector<float> unpacked(request.n);
  UnpackScales(kKtAmxInt4, request, request.n, bytes, unpacked);
  CHECK(unpacked == scales);

  scales[7] = 0x1.000002p-126F;  // a sixteenth has fewer digits there
  CheckError(PackScales(kKtAmxInt4, request, request.n, scales, bytes), ErrorKind::kUnsupported,
             "scale of row 7, group 0: F32 cannot hold a sixteenth of it");
}

}  // namespace
}  // namespace prepack::testing
