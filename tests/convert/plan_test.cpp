#include "prepack/convert/plan.h"

#include "catch.h"
#include "formats/tiny_model.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

class Planned {
 public:
  Planned(const std::string& checkpoint, PlanOptions options)
      : checkpoint_(Checkpoint::Open(Fixture("checkpoints/" + checkpoint))) {
    REQUIRE(checkpoint_.ok());
    model_ = std::make_unique<Result<QuantizedModel>>(ReadQuantizedModel(*checkpoint_));
    REQUIRE(model_->ok());
    plan_ = std::make_unique<Result<Plan>>(MakePlan(*checkpoint_, **model_, options));
  }
  const Result<Plan>& plan() const { return *plan_; }

 private:
  Result<Checkpoint> checkpoint_;
  std::unique_ptr<Result<QuantizedModel>> model_;
  std::unique_ptr<Result<Plan>> plan_;
};

TEST_CASE("the plan of a real checkpoint packs every module and knows the sizes") {
  const Planned planned("ct-w4a16-g32-asym", {.target = "vllm-cpu", .fallback = Fallback::kError});
  REQUIRE(planned.plan().ok());
  const Plan& plan = *planned.plan();
  CHECK(plan.PackedModules() == 7);
  CHECK(plan.activation_dtype == DType::kBF16);  // from config.json
  CHECK(CheckPlan(plan).ok());
  const ModulePlan& down = plan.modules.front();
  CHECK(down.linear->module() == "model.layers.0.mlp.down_proj");
  CHECK(down.chosen->id == "vllm-cpu/wna16");
  // 384 × 1536 nibbles, 384 × 48 bf16 scales, 384 × 48 zero points of 4 bits.
  CHECK(down.packed_bytes == 384 * 1536 / 2 + 384 * 48 * 2 + 384 * 48 / 2);
  // The source has weight_shape on top of that, 16 bytes per module.
  CHECK(plan.source_bytes - plan.output_bytes == 7 * 16);
}

TEST_CASE("a plan in which nothing fits says why and is not carried out") {
  const Planned planned("ct-w4a16-g128-sym",
                        {.target = "vllm-cpu", .activation_dtype = DType::kF32});
  REQUIRE(planned.plan().ok());
  const Plan& plan = *planned.plan();
  CHECK(plan.PackedModules() == 0);
  CHECK(plan.output_bytes == plan.source_bytes);
  const Status status = CheckPlan(plan);
  REQUIRE_FALSE(status.ok());
  CHECK(status.kind() == ErrorKind::kUnsupported);
  CHECK_THAT(status.ToString(), Catch::Contains("no layout of vllm-cpu takes any module"));
  CHECK_THAT(status.ToString(), Catch::Contains("vllm-cpu/wna16: "));
}

TEST_CASE("a bias of another shape is refused by the plan, whatever its dtype") {
  const TempFolder temp;
  for (const char* dtype : {"BF16", "I32"}) {
    CAPTURE(dtype);
    TestCheckpoint source = TinyModel({"a"});
    source.tensors.push_back(
        {"a.bias", dtype, {1}, std::vector<std::byte>(dtype[0] == 'B' ? 2 : 4)});
    source.Write(temp.path());
    const Checkpoint checkpoint = Value(Checkpoint::Open(temp.path()));
    const QuantizedModel model = Value(ReadQuantizedModel(checkpoint));
    CheckError(MakePlan(checkpoint, model, {.target = "vllm-cpu"}).status(), ErrorKind::kMalformed,
               "one value per output channel of the module");
  }
}

TEST_CASE("a bias of integers is refused by the plan") {
  const TempFolder temp;
  TestCheckpoint source = TinyModel({"a"});
  source.tensors.push_back({"a.bias", "I16", {32}, std::vector<std::byte>(64)});
  source.Write(temp.path());
  const Checkpoint checkpoint = Value(Checkpoint::Open(temp.path()));
  const QuantizedModel model = Value(ReadQuantizedModel(checkpoint));
  CheckError(MakePlan(checkpoint, model, {.target = "vllm-cpu"}).status(), ErrorKind::kMalformed,
             "the values of the bias have the wrong dtype");
}

TEST_CASE("a plan for nothing is not carried out") {
  CheckError(CheckPlan({}), ErrorKind::kUnsupported, "there is nothing to pack");
}

TEST_CASE("an unknown target is a usage error that suggests the nearest") {
  const Planned planned("ct-w4a16-g128-sym", {.target = "zentorc", .activation_dtype = {}});
  REQUIRE_FALSE(planned.plan().ok());
  CHECK(planned.plan().status().kind() == ErrorKind::kUsage);
  CHECK(planned.plan().status().hint() == "Did you mean zentorch?");
}

const ModulePlan& Module(const Plan& plan, std::string_view suffix) {
  for (const ModulePlan& module : plan.modules) {
    if (module.linear->module().ends_with(suffix)) return module;
  }
  FAIL("no module " << suffix);
  return plan.modules.front();
}

TEST_CASE("schemes can be chosen for some modules") {
  const Planned planned(
      "ct-w4a16-g128-sym",
      {.target = "vllm-cpu", .schemes = {{.pattern = "mlp", .scheme = WantedScheme::kW4A8}}});
  REQUIRE(planned.plan().ok());
  const ModulePlan& up = Module(*planned.plan(), "up_proj");
  CHECK(up.chosen->id == "vllm-cpu/int4-w4a8");
  CHECK(up.note == "the checkpoint says activations: none; here: 8-bit int per token dynamic");
  const ModulePlan& query = Module(*planned.plan(), "q_proj");
  CHECK(query.chosen->id == "vllm-cpu/wna16");
  CHECK(query.note.empty());
  const Planned none(
      "ct-w4a16-g128-sym",
      {.target = "vllm-cpu", .schemes = {{.pattern = "mlp", .scheme = WantedScheme::kW8A8}}});
  CHECK(none.plan().status().kind() == ErrorKind::kUsage);
}

TEST_CASE("what no layout takes is kept, dequantized or refused") {
  const PlanOptions keep{.target = "vllm-cpu"};
  const Planned kept("ar-w4-sym-mixed", keep);
  const ModulePlan& down = Module(*kept.plan(), "down_proj");
  CHECK(down.chosen == nullptr);
  CHECK(down.packed_bytes == down.source_bytes);
  CHECK(CheckPlan(*kept.plan()).ok());

  PlanOptions options = keep;
  options.fallback = Fallback::kDequantize;
  const Planned dequantized("ar-w4-sym-mixed", options);
  const ModulePlan& floats = Module(*dequantized.plan(), "down_proj");
  CHECK(floats.chosen->id == "vllm-cpu/bf16-vnni");
  CHECK(floats.packed_bytes == 384 * 1536 * 2);
  CHECK_THAT(floats.WhyRejected(), Catch::Contains("the codes have 8 bits"));
  options.target = "zentorch";
  const Planned plain("ar-w4-sym-mixed", options);
  CHECK(Module(*plain.plan(), "down_proj").chosen->id == "plain/bf16");

  options.target = "vllm-cpu";
  options.fallback = Fallback::kError;
  const Planned refused("ar-w4-sym-mixed", options);
  const Status status = CheckPlan(*refused.plan());
  REQUIRE_FALSE(status.ok());
  CHECK_THAT(status.ToString(), Catch::Contains("down_proj") && Catch::Contains("--fallback keep"));
}

TEST_CASE("act-order is a part of the packed module") {
  const Planned planned("gptqmodel-w4-actorder-g128", {.target = "vllm-cpu"});
  const ModulePlan& down = Module(*planned.plan(), "down_proj");
  const PartSpec* order = FindPart(down.parts, PartRole::kInputOrder);
  REQUIRE(order != nullptr);
  CHECK(order->dtype == DType::kI32);
  CHECK(order->shape == std::vector<uint64_t>{1536});
}

TEST_CASE("modules that are alike share a choice, and others do not") {
  const Planned planned("ct-w4a16-g32-asym", {.target = "vllm-cpu"});
  const Plan& plan = *planned.plan();
  const ModulePlan& gate = Module(plan, "gate_proj");
  const ModulePlan& up = Module(plan, "up_proj");
  const ModulePlan& down = Module(plan, "down_proj");
  CHECK(&gate.request == &up.request);
  CHECK(&gate.parts == &up.parts);
  CHECK(&gate.request != &down.request);  // N and K change places
  CHECK(plan.choices.size() < plan.modules.size());
  for (const ModulePlan& module : plan.modules) {
    INFO(module.linear->module());
    CHECK(module.request.n == module.linear->n());
    CHECK(module.request.k == module.linear->k());
    CHECK(module.request.scheme == module.linear->scheme());
  }
}

TEST_CASE("modules of one shape do not share a choice when they are asked for other activations") {
  PlanOptions options{.target = "vllm-cpu"};
  options.schemes = {*ParseSchemeChoice("up_proj=w4a8")};
  const Planned planned("ct-w4a16-g32-asym", options);
  const ModulePlan& gate = Module(*planned.plan(), "gate_proj");
  const ModulePlan& up = Module(*planned.plan(), "up_proj");
  CHECK(&gate.request != &up.request);
  CHECK(gate.chosen->id == "vllm-cpu/wna16");
  CHECK(up.chosen->id == "vllm-cpu/int4-w4a8");
}

TEST_CASE("exact scales are kept where a part can hold them") {
  PlanOptions options{.target = "zentorch", .exact_scales = true};
  const Planned exact("ct-w4a16-g128-sym", options);
  CHECK(FindPart(Module(*exact.plan(), "q_proj").parts, PartRole::kScale)->dtype == DType::kF32);
  options.exact_scales = false;
  const Planned runtime("ct-w4a16-g128-sym", options);
  CHECK(FindPart(Module(*runtime.plan(), "q_proj").parts, PartRole::kScale)->dtype == DType::kBF16);
}

TEST_CASE("the memory of a conversion is estimated from the plan") {
  const Planned planned("ct-w4a16-g128-sym", {.target = "vllm-cpu"});
  const uint64_t one = planned.plan()->PeakMemory(1);
  // A panel of 128 KiB, its packed form, and f32 scales and zero points.
  CHECK(one > 2 * 128 * 1024);
  CHECK(one < 8 * 1024 * 1024);
  CHECK(planned.plan()->PeakMemory(4) == 4 * one);
}

TEST_CASE("activation dtypes have names") {
  CHECK(ActivationDTypeFromName("f16") == DType::kF16);
  CHECK_FALSE(ActivationDTypeFromName("fp16").has_value());
  CHECK(ActivationDTypeName(DType::kBF16) == "bf16");
}

}  // namespace
}  // namespace prepack::testing
