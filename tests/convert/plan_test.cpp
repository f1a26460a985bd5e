#include "convert/plan.h"

#include "catch.h"
#include "temp_folder.h"

namespace prepack {
namespace {

using testing::Fixture;

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

TEST_CASE("an unknown target is a usage error that suggests the nearest") {
  const Planned planned("ct-w4a16-g128-sym", {.target = "zentorc", .activation_dtype = {}});
  REQUIRE_FALSE(planned.plan().ok());
  CHECK(planned.plan().status().kind() == ErrorKind::kUsage);
  CHECK(planned.plan().status().hint() == "Did you mean zentorch?");
}

TEST_CASE("activation dtypes have names") {
  CHECK(ActivationDTypeFromName("f16") == DType::kF16);
  CHECK_FALSE(ActivationDTypeFromName("fp16").has_value());
  CHECK(ActivationDTypeName(DType::kBF16) == "bf16");
}

}  // namespace
}  // namespace prepack
