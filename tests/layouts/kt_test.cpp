// Names of kt-kernel, and what its packer and its loader's folders hold (fixtures/golden_kt).

#include <algorithm>
#include <string>
#include <vector>

#include "catch.h"
#include "golden_file.h"
#include "prepack/base/isa.h"
#include "prepack/kernels/kernels.h"
#include "prepack/layouts/fingerprint.h"
#include "prepack/layouts/table.h"

namespace prepack::testing {
namespace {

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
    CHECK(kKtAmxInt8.IsNamed(row.module));
    CHECK(kKtAmxInt8.TensorName(row.module, kKtWeight) == std::string(row.tensor) + "weight");
    CHECK(kKtAmxInt8.TensorName(row.module, kKtScale) == std::string(row.tensor) + "scale");
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
    CHECK_FALSE(kKtAmxInt8.IsNamed(module));
    CHECK(kKtAmxInt8.TensorName(module, kKtScale) == std::string(module) + ".weight_scale");
  }
}

PackRequest Int8Expert(uint64_t n, uint64_t k) {
  PackRequest request;
  request.scheme.code = CodeType::kS8;
  request.scheme.bits = 8;
  request.scheme.granularity = Granularity::kChannel;
  request.scheme.group_size = k;
  request.scheme.activations = {.type = ActivationType::kInt, .bits = 8};
  request.n = n;
  request.k = k;
  request.stored_scale_dtype = DType::kF32;
  request.experts = 1;
  return request;
}

// Columns [k0, k0 + cols) of rows [n0, n0 + rows).
std::vector<std::byte> Window(const GoldenFile::Tensor& codes, const PanelRange& range) {
  std::vector<std::byte> window;
  for (uint64_t n = range.n0; n < range.n0 + range.rows; ++n) {
    const auto row =
        codes.bytes.begin() + static_cast<std::ptrdiff_t>(n * codes.shape[1] + range.k0);
    window.insert(window.end(), row, row + static_cast<std::ptrdiff_t>(range.cols));
  }
  return window;
}

// kt-kernel's converter cuts gate and up by their output channels, down by its input channels.
PanelRange ShareOf(const TensorShape& shape, bool down, uint64_t node, uint64_t nodes) {
  const auto [n, k] = std::pair(shape[0], shape[1]);
  if (down) return {.n0 = 0, .rows = n, .k0 = node * (k / nodes), .cols = k / nodes};
  return {.n0 = node * (n / nodes), .rows = n / nodes, .k0 = 0, .cols = k};
}

TEST_CASE("a whole expert over NUMA nodes is what kt-kernel's converter writes") {
  const GoldenFile source(Fixture("golden_kt/kt_amxint8_expert-numa-1.safetensors"));
  for (const uint64_t nodes : {1U, 2U}) {
    const GoldenFile golden(
        Fixture("golden_kt/kt_amxint8_expert-numa-" + std::to_string(nodes) + ".safetensors"));
    for (const std::string layer : {"gate", "up", "down"}) {
      const GoldenFile::Tensor& codes = source.At(layer + ".codes");
      const std::vector<float> scales = source.Values<float>(layer + ".scales");
      for (uint64_t node = 0; node < nodes; ++node) {
        const PanelRange share = ShareOf(codes.shape, layer == "down", node, nodes);
        const PackRequest request = Int8Expert(share.rows, share.cols);
        REQUIRE(kKtAmxInt8.Takes(request).reason == "");
        const auto first = scales.begin() + static_cast<std::ptrdiff_t>(share.n0);
        const Probe probe{.codes = Window(codes, share),
                          .scales = {first, first + static_cast<std::ptrdiff_t>(share.rows)},
                          .zero_points = {}};
        const std::string module =
            "model.layers.0.mlp.experts.0." + layer + "_proj.numa." + std::to_string(node);
        INFO(module << " of " << nodes);
        for (const PartSpec& part : kKtAmxInt8.Parts(request)) {
          CHECK(PackWhole(kKtAmxInt8, request, probe, part.role) ==
                golden.At(kKtAmxInt8.TensorName(module, part)).bytes);
        }
      }
    }
  }
}

}  // namespace
}  // namespace prepack::testing
