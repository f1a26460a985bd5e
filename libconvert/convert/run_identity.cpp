#include "convert/run_identity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/hash.h"
#include "base/version.h"
#include "container/checkpoint.h"
#include "container/json_writer.h"
#include "container/required_fields.h"
#include "convert/plan.h"
#include "convert/scheme_json.h"

namespace prepack {
namespace {

struct Field {
  std::string_view name;  // in JSON
  std::string_view what;  // for people
  std::string RunIdentity::*value;
};

constexpr std::string_view kOtherSource = "another source, or a source that has changed";

constexpr std::array kFields = {
    Field{"prepack", "another version of prepack", &RunIdentity::tool},
    Field{"source", kOtherSource, &RunIdentity::source},
    Field{"options", "other options", &RunIdentity::options},
    Field{"plan", "a plan that packs other bytes", &RunIdentity::plan},
};

std::string SourceIdentity(const Checkpoint& checkpoint) {
  Xxh3Hasher hasher;
  hasher.Update(checkpoint.config_text());
  for (const auto& [name, config] : checkpoint.side_configs()) {
    hasher.Update(fmt::format("\n{} {}", name, PythonJsonText(config)));
  }
  for (const CheckpointFile& file : checkpoint.files()) {
    hasher.Update(fmt::format("\n{} {}", file.name, file.file.size()));
  }
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    hasher.Update(fmt::format("\n{} {} {} {} {}", tensor.name, DTypeName(tensor.dtype),
                              fmt::join(tensor.shape, ","), tensor.file, tensor.offset));
  }
  return hasher.HexDigest();
}

std::string OptionsText(const Plan& plan, const PlanOptions& options, uint64_t shard_bytes) {
  std::string text = fmt::format("--target {} --dtype {} --scales {}", plan.target->id,
                                 ActivationDTypeName(plan.activation_dtype),
                                 options.exact_scales ? "exact" : "runtime");
  constexpr std::array kFallbacks = {"keep", "dequantize", "error"};
  text += fmt::format(" --fallback {}", kFallbacks[static_cast<size_t>(options.fallback)]);
  if (options.fuse) text += " --fuse";
  for (const std::string& name : options.accepted.names()) text += " --accept " + name;
  for (const SchemeChoice& choice : options.schemes) text += " --scheme " + choice.Text();
  return text + fmt::format(", shards of {} bytes", shard_bytes);
}

// What each module becomes, with the fingerprints of the layouts: a build that packs other bytes
// under the same version is another tool.
std::string PlanIdentity(const Plan& plan) {
  Xxh3Hasher hasher;
  for (const ModulePlan& module : plan.modules) {
    hasher.Update(fmt::format("{} {}\n", module.linear->module(),
                              module.chosen != nullptr ? module.chosen->id : "kept"));
    if (module.request.weights_desc) {
      hasher.Update(BlockedDescJson(*module.request.weights_desc).dump());
    }
    if (module.chosen != nullptr) hasher.Update(module.chosen->fingerprint);
    for (const PartSpec& part : module.parts) {
      hasher.Update(fmt::format("\n{} {} {}\n", part.name, DTypeName(part.dtype),
                                fmt::join(part.shape, ",")));
    }
  }
  return hasher.HexDigest();
}

}  // namespace

RunIdentity IdentityOf(const Checkpoint& checkpoint, const Plan& plan, const PlanOptions& options,
                       uint64_t shard_bytes) {
  return {.tool = kVersion,
          .source = SourceIdentity(checkpoint),
          .options = OptionsText(plan, options, shard_bytes),
          .plan = PlanIdentity(plan)};
}

Status CheckSameRun(const RunIdentity& found, const RunIdentity& expected, std::string_view where) {
  for (const Field& field : kFields) {
    if (found.*field.value == expected.*field.value) continue;
    return Usage(where, fmt::format("it comes from {}", field.what))
        .Found(found.*field.value)
        .Expected(expected.*field.value);
  }
  return {};
}

Status AnotherSource(std::string_view where, std::string_view found, std::string_view expected) {
  return Usage(where, fmt::format("it comes from {}", kOtherSource))
      .Found(found)
      .Expected(expected);
}

Json IdentityJson(const RunIdentity& identity) {
  Json json = Json::object();
  for (const Field& field : kFields) json[std::string(field.name)] = identity.*field.value;
  return json;
}

Result<RunIdentity> ReadIdentity(const Json& json, std::string_view where) {
  RunIdentity identity;
  for (const Field& field : kFields) {
    Result<std::string> value = StringField(json, field.name, where);
    if (!value.ok()) return value.status();
    identity.*field.value = *std::move(value);
  }
  return identity;
}

}  // namespace prepack
