#include "prepack/inspect/inspect.h"

#include <optional>
#include <string>

#include "formats/ct_example.h"
#include "status_matchers.h"
#include "temp_folder.h"
#include "verify/packed_example.h"

namespace prepack::testing {
namespace {

TEST_CASE("a checkpoint is described with its modules and tensors") {
  const InspectReport report = Value(Inspect(Fixture("checkpoints/ct-w4a16-g128-sharded")));
  CHECK(report.kind == FolderKind::kCheckpoint);
  CHECK(report.format == "compressed-tensors");
  CHECK(report.files.size() == 3);
  CHECK(report.files[1].tensors == 8);
  CHECK(report.tensors.size() == 25);
  CHECK(report.modules.size() == 7);
  const std::optional<FoundModule> found = report.FindModule("model.layers.0.mlp.down_proj");
  REQUIRE(found.has_value());
  CHECK_FALSE(found->is_part());
  const ModuleSummary* module = found->module;
  CHECK(module->n == 384);
  CHECK(module->k == 1536);
  CHECK(DescribeScheme(module->scheme) == "w4a16 group 128 symmetric");
  // 4 bits per code, a bf16 scale per 128, and 16 bytes of weight_shape.
  CHECK(module->BitsPerWeight() == Approx(4 + 16.0 / 128 + 128.0 / (384 * 1536)));
  CHECK_FALSE(report.FindModule("model.layers.0.mlp").has_value());
}

TEST_CASE("a module that was fused is found in the one that it is a part of") {
  const TempFolder temp;
  Pack(Fixture("checkpoints/ct-w4a16-g32-asym"), {.target = "vllm-cpu", .fuse = true},
       temp / "packed");
  const InspectReport report = Value(Inspect(temp / "packed"));
  const std::optional<FoundModule> whole = report.FindModule("model.layers.0.self_attn.qkv_proj");
  REQUIRE(whole.has_value());
  CHECK_FALSE(whole->is_part());
  uint64_t first = 0;
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
    CAPTURE(name);
    const auto part = report.FindModule(std::string("model.layers.0.self_attn.") + name);
    REQUIRE(part.has_value());
    CHECK(part->is_part());
    CHECK(part->module == whole->module);
    CHECK(part->channels.first == first);
    first += part->channels.n;
  }
  CHECK(first == whole->module->n);
}

TEST_CASE("a single file is described by its tensors") {
  const InspectReport report =
      Value(Inspect(Fixture("checkpoints/ct-w4a16-g32-asym/model.safetensors")));
  CHECK(report.kind == FolderKind::kSafetensorsFile);
  CHECK(report.modules.empty());
  CHECK_FALSE(report.unreadable.has_value());
  CHECK(report.tensors.size() == 32);
}

TEST_CASE("a checkpoint that cannot be packed is still shown, with the reason") {
  TempFolder temp;
  TestCheckpoint checkpoint = SymmetricExample();
  checkpoint.config["quantization_config"]["quant_method"] = "gptq";
  checkpoint.Write(temp.path());
  const InspectReport report = Value(Inspect(temp.path()));
  CHECK(report.tensors.size() == 4);
  CHECK(report.modules.empty());
  REQUIRE(report.unreadable.has_value());
  CheckError(*report.unreadable, ErrorKind::kUnsupported, "gptq");
}

TEST_CASE("what is not there cannot be inspected") {
  TempFolder temp;
  CheckError(Inspect(temp / "nothing").status(), ErrorKind::kSystem, "nothing");
  CheckError(Inspect(temp.path()).status(), ErrorKind::kMalformed, "safetensors");
}

}  // namespace
}  // namespace prepack::testing
