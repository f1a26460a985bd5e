// Which modules are multiplied with the same activations, and that it changes nothing.

#include "prepack/verify/input_cache.h"

#include <algorithm>
#include <memory>
#include <string>

#include "catch.h"
#include "prepack/verify/module_products.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

class CachedInputs {
 public:
  CachedInputs(const char* checkpoint, const PackedExample& example,
               uint64_t most_kept = InputCache::kMostKept)
      : source_(Fixture(std::string("checkpoints/") + checkpoint)),
        folder_(PackAndOpen(source_, example, temp_ / "out")),
        checkpoint_(Value(Checkpoint::Open(source_))),
        decoder_(Value(SecondDecoder::Make(checkpoint_, folder_.manifest().source_format))),
        cache_(most_kept) {}

  PackedModule Module(const std::string& name) const {
    // The module refers to its name: the one that the manifest keeps.
    const auto& [whole, entry] = *folder_.manifest().modules.find("model.layers.0." + name);
    return Value(PackedModule::Open(folder_, whole, entry));
  }
  std::shared_ptr<const GemmInputs> Of(const std::string& name) {
    return Value(cache_.Inputs(Module(name), decoder_, nullptr, std::nullopt));
  }
  ModuleProducts Multiply(const std::string& name, InputCache* cache) const {
    Progress progress;
    return Value(MultiplyModule(Module(name), decoder_, {.inputs = cache}, progress));
  }
  InputCache& cache() { return cache_; }
  const SecondDecoder& decoder() const { return decoder_; }

 private:
  static PackedFolder PackAndOpen(const std::filesystem::path& source, const PackedExample& example,
                                  const std::filesystem::path& out) {
    Pack(source, example, out);
    return Value(PackedFolder::Open(out));
  }

  TempFolder temp_;
  std::filesystem::path source_;
  PackedFolder folder_;
  Checkpoint checkpoint_;
  SecondDecoder decoder_;
  InputCache cache_;
};

TEST_CASE("modules of a K share their activations") {
  CachedInputs inputs("ct-w4a16-g128-sym", {.target = "vllm-cpu"});
  const auto q_proj = inputs.Of("self_attn.q_proj");
  CHECK(inputs.Of("self_attn.k_proj") == q_proj);
  CHECK(inputs.Of("mlp.up_proj") == q_proj);
  const auto down_proj = inputs.Of("mlp.down_proj");
  CHECK(down_proj != q_proj);
  CHECK(down_proj->k() != q_proj->k());
  CHECK(inputs.Of("self_attn.o_proj") == q_proj);  // not only the last ones are known
}

TEST_CASE("the activations that were used last are kept, as far as there is room") {
  const uint64_t of_down_proj = BytesOfInputs(1536, false);
  for (const bool room : {true, false}) {
    CachedInputs inputs("ct-w4a16-g128-sym", {.target = "vllm-cpu"},
                        of_down_proj + (room ? BytesOfInputs(384, false) : 0));
    const std::weak_ptr<const GemmInputs> q_proj = inputs.Of("self_attn.q_proj");
    CHECK_FALSE(q_proj.expired());
    const std::weak_ptr<const GemmInputs> down_proj = inputs.Of("mlp.down_proj");
    CHECK(q_proj.expired() == !room);
    CHECK_FALSE(down_proj.expired());
    inputs.Of("self_attn.k_proj");
    CHECK(down_proj.expired() == !room);
  }
  // More than may be kept at all.
  CachedInputs inputs("ct-w4a16-g128-sym", {.target = "vllm-cpu"}, of_down_proj - 1);
  const std::weak_ptr<const GemmInputs> down_proj = inputs.Of("mlp.down_proj");
  CHECK(down_proj.expired());
  CHECK_FALSE(inputs.cache().Keeps(inputs.Module("mlp.down_proj"), nullptr));
  CHECK(inputs.cache().Keeps(inputs.Module("self_attn.q_proj"), nullptr));
}

TEST_CASE("modules with an order of their own share what is drawn") {
  CachedInputs inputs("gptqmodel-w4-actorder-g128", {.target = "vllm-cpu"});
  const auto q_proj = inputs.Of("self_attn.q_proj");
  const auto o_proj = inputs.Of("self_attn.o_proj");
  CHECK(q_proj != o_proj);
  CHECK(q_proj->exact().data() == o_proj->exact().data());
  CHECK_FALSE(std::ranges::equal(q_proj->order(), o_proj->order()));
}

TEST_CASE("slabs, and the range of a static scale, have activations of their own") {
  CachedInputs plain("ct-w4a16-g128-sym", {.target = "vllm-cpu"});
  const PackedModule module = plain.Module("self_attn.q_proj");
  const InputSlab slab{.k0 = 128, .inputs = 128};
  const auto first = Value(plain.cache().Inputs(module, plain.decoder(), nullptr, slab));
  const auto second = Value(plain.cache().Inputs(module, plain.decoder(), nullptr, slab));
  CHECK(first != second);

  CachedInputs fixed("ct-w8a8-static", {.target = "vllm-cpu"});
  const auto q_proj = fixed.Of("self_attn.q_proj");
  const auto o_proj = fixed.Of("self_attn.o_proj");
  CHECK(q_proj->k() == o_proj->k());
  CHECK(q_proj->exact()[0] != o_proj->exact()[0]);
}

TEST_CASE("products with shared activations are those with activations of their own") {
  for (const char* target : {"vllm-cpu", "zentorch"}) {
    CachedInputs inputs("ct-w4a16-g128-sym", {.target = target});
    for (const char* name : {"self_attn.q_proj", "self_attn.k_proj", "mlp.down_proj"}) {
      const ModuleProducts shared = inputs.Multiply(name, &inputs.cache());
      const ModuleProducts own = inputs.Multiply(name, nullptr);
      REQUIRE(shared.gemm.inputs.size() == own.gemm.inputs.size());
      for (size_t i = 0; i < own.gemm.inputs.size(); ++i) {
        CHECK(shared.gemm.inputs[i].kernel.sqnr_db == own.gemm.inputs[i].kernel.sqnr_db);
        CHECK(shared.gemm.inputs[i].end_to_end.cosine == own.gemm.inputs[i].end_to_end.cosine);
      }
    }
  }
}

}  // namespace
}  // namespace prepack::testing
