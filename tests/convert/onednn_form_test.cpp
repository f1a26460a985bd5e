// --onednn-form: from the plan to the manifest and back.

#include "prepack/convert/layout_choice.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "prepack/layouts/table.h"
#include "prepack/packed/manifest.h"
#include "prepack/packed/scheme_json.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack::testing {
namespace {

const OneDnnOrigin kOrigin = {.version = "3.13.2",
                              .hash = std::string(40, 'a'),
                              .isa = "0x7",
                              .implementation = "ref_int8:any"};

class PlannedForOneDnn {
 public:
  PlannedForOneDnn(const std::string& checkpoint, const PlanOptions& options)
      : checkpoint_(Value(Checkpoint::Open(Fixture("checkpoints/" + checkpoint)))),
        model_(Value(ReadQuantizedModel(checkpoint_))),
        plan_(MakePlan(checkpoint_, model_, options)) {}
  const Result<Plan>& plan() const { return plan_; }

 private:
  Checkpoint checkpoint_;
  QuantizedModel model_;
  Result<Plan> plan_;
};

TEST_CASE("a plan for oneDNN has the form that was chosen, and counts its bytes") {
  for (const char* checkpoint : {"ct-w8a8-dynamic", "ct-w8a8-static", "ct-w8a8-asym-act"}) {
    INFO(checkpoint);
    const PlannedForOneDnn blocked(checkpoint, {.target = "onednn"});
    const PlannedForOneDnn plain(checkpoint,
                                 {.target = "onednn", .onednn_form = OneDnnForm::kPlain});
    RequireOk(blocked.plan().status());
    RequireOk(plain.plan().status());
    REQUIRE(blocked.plan()->PackedModules() > 0);
    for (size_t i = 0; i < blocked.plan()->modules.size(); ++i) {
      const ModulePlan& one = blocked.plan()->modules[i];
      const ModulePlan& other = plain.plan()->modules[i];
      REQUIRE(one.chosen->id == kOneDnnW8A8.id);
      CHECK(one.request.weights_desc == DefaultW8A8Desc(one.request));
      CHECK(other.request.weights_desc == PlainDesc(other.request.k, other.request.n));
      CHECK(other.parts[0].shape == std::vector<uint64_t>{other.request.n * other.request.k});
      CHECK(one.packed_bytes - other.packed_bytes ==
            one.parts[0].shape[0] - other.parts[0].shape[0]);
      CHECK_FALSE(one.onednn.has_value());
      CHECK_FALSE(other.onednn.has_value());
    }
  }
}

TEST_CASE("only modules of onednn/w8a8 have a form") {
  const PlannedForOneDnn planned("ct-w4a16-g128-sym",
                                 {.target = "onednn", .onednn_form = OneDnnForm::kNative});
  RequireOk(planned.plan().status());
  for (const ModulePlan& module : planned.plan()->modules) {
    CHECK(module.chosen->id == "onednn/w4a16");
    CHECK_FALSE(module.request.weights_desc.has_value());
  }
}

TEST_CASE("a form for another target is a usage error") {
  for (const OneDnnForm form : {OneDnnForm::kPlain, OneDnnForm::kNative}) {
    const PlannedForOneDnn planned("ct-w8a8-dynamic", {.target = "vllm-cpu", .onednn_form = form});
    CheckError(planned.plan().status(), ErrorKind::kUsage,
               "--onednn-form: this option is only for another target (found --target vllm-cpu, "
               "expected --target "
               "onednn)");
  }
}

TEST_CASE("a form that only a reference implementation reads is worth a note") {
  ChosenForm form{.weights_desc = PlainDesc(64, 32)};
  CHECK(form.Note().empty());
  form.origin = kOrigin;
  CHECK(
      form.Note() ==
      "oneDNN 3.13.2 has only a reference implementation for this on this machine (ref_int8:any): "
      "right, but slow");
  form.origin->implementation = "gemm:jit";
  CHECK(form.Note().empty());
}

TEST_CASE("what oneDNN answered comes back from JSON as it was") {
  const Json json = OneDnnOriginJson(kOrigin);
  CHECK(json.at("probe_m") == 128);
  CHECK(Value(ReadOneDnnOrigin(json, "m")) == kOrigin);
  for (const char* field : {"version", "hash", "isa", "implementation", "probe_m"}) {
    INFO(field);
    Json without = json;
    without.erase(field);
    CheckError(ReadOneDnnOrigin(without, "module m").status(), ErrorKind::kMalformed,
               fmt::format("module m: field \"{}\" is missing", field));
    Json wrong = json;
    wrong[field] = Json::array();
    CheckError(ReadOneDnnOrigin(wrong, "module m").status(), ErrorKind::kMalformed, field);
  }
  CheckError(ReadOneDnnOrigin(Json::array(), "module m").status(), ErrorKind::kMalformed,
             "module m");
}

// A manifest with one module of onednn/w8a8, written and read.
Result<Manifest> WrittenAndRead(std::optional<BlockedDesc> desc,
                                std::optional<OneDnnOrigin> origin) {
  ModuleRecord module;
  module.layout = kOneDnnW8A8.id;
  module.n = 32;
  module.k = 64;
  module.scheme = {.code = CodeType::kS8,
                   .bits = 8,
                   .granularity = Granularity::kChannel,
                   .group_size = 64,
                   .symmetric = true,
                   .activations = {.type = ActivationType::kInt, .bits = 8}};
  module.scale_rounding = "none";
  module.weights_desc = std::move(desc);
  module.onednn = std::move(origin);
  Manifest manifest;
  manifest.target = "onednn";
  manifest.source_quantization_config = Json::object();
  manifest.layouts[module.layout] = {1, std::string(kOneDnnW8A8.fingerprint)};
  manifest.modules["a.b"] = module;
  const TempFolder temp;
  std::ofstream(temp / "prepack.json") << ManifestText(manifest);
  return ReadManifest(temp.path());
}

TEST_CASE("the manifest says in which form weights were written, and who asked for it") {
  BlockedDesc desc = Ba16a64b4aDesc(64, 32);
  desc.s8s8_compensation = true;
  const Manifest native = Value(WrittenAndRead(desc, kOrigin));
  CHECK(native.modules.at("a.b").weights_desc == desc);
  CHECK(native.modules.at("a.b").onednn == kOrigin);
  const Manifest fixed = Value(WrittenAndRead(desc, std::nullopt));
  CHECK_FALSE(fixed.modules.at("a.b").onednn.has_value());
  for (const std::optional<OneDnnOrigin>& origin : {std::optional(kOrigin), {}}) {
    CheckError(WrittenAndRead(std::nullopt, origin).status(), ErrorKind::kMalformed,
               "module a.b: field \"memory_descriptor\" is missing");
  }
}

}  // namespace
}  // namespace prepack::testing
