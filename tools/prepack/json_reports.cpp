#include "json_reports.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "inspect_summary.h"
#include "prepack/base/version.h"
#include "prepack/layouts/drawing.h"
#include "prepack/layouts/table.h"
#include "prepack/packed/scheme_json.h"

namespace prepack::cli {
namespace {

Json RuntimeJson(const std::vector<RuntimeChoice>& choices) {
  Json json = Json::array();
  for (const RuntimeChoice& choice : choices) {
    json.push_back({{"cpu", choice.cpu}, {"kernel", choice.kernel}, {"remark", choice.remark}});
  }
  return json;
}

Json CandidatesJson(const std::vector<Candidate>& candidates) {
  Json json = Json::array();
  for (const Candidate& candidate : candidates) {
    Json one = {{"layout", candidate.layout->id}, {"eligible", candidate.verdict.ok}};
    if (!candidate.verdict.ok) one["reason"] = candidate.verdict.reason;
    json.push_back(std::move(one));
  }
  return json;
}

Json PartsJson(const std::vector<PartSpec>& parts) {
  Json json = Json::array();
  for (const PartSpec& part : parts) {
    json.push_back({{"name", part.name}, {"dtype", DTypeName(part.dtype)}, {"shape", part.shape}});
  }
  return json;
}

// What holds for all modules that are like this one.
Json ChoiceJson(const Plan& plan, const ModulePlan& module, const std::string& format) {
  const Layout* chosen = module.chosen;
  Json json = Json::object();
  json["scheme"] = SchemeJson(module.linear->scheme());
  json["layout"] = chosen == nullptr ? Json(nullptr) : Json(chosen->id);
  json["computed_as"] = chosen == nullptr ? Json(nullptr) : SchemeJson(module.request.scheme);
  json["isa"] = chosen == nullptr ? Json(nullptr) : Json(chosen->isa);
  json["note"] = module.note;
  json["candidates"] = CandidatesJson(module.candidates);
  json["runtime"] = RuntimeJson(RuntimeChoicesFor(plan, module, format));
  json["parts"] = PartsJson(module.parts);
  return json;
}

// Writes what modules have in common, and returns where: modules that are alike have one request.
std::map<const PackRequest*, size_t> WriteChoices(const Plan& plan, const std::string& format,
                                                  JsonWriter& json) {
  std::map<const PackRequest*, size_t> places;
  json.BeginArray();
  for (const ModulePlan& module : plan.modules) {
    if (!places.emplace(&module.request, places.size()).second) continue;
    const JsonWriter::Line line(json);
    json.Value(ChoiceJson(plan, module, format));
  }
  json.EndArray();
  return places;
}

// The modules of the checkpoint that a fused one is made of; of others, an empty array.
Json MemberNames(const QuantizedLinear& linear) {
  Json names = Json::array();
  for (const QuantizedLinear* member : linear.members()) names.push_back(member->module());
  return names;
}

void WriteModulePlan(const ModulePlan& module, size_t choice, JsonWriter& json) {
  const JsonWriter::Line line(json);
  json.BeginObject();
  json.MemberText("module", module.linear->module());
  json.Member("made_of", MemberNames(*module.linear));
  json.Member("shape", {module.request.n, module.request.k});
  json.Member("layout", module.chosen == nullptr ? Json(nullptr) : Json(module.chosen->id));
  json.MemberNumber("choice", choice);
  json.MemberNumber("source_bytes", module.source_bytes);
  json.MemberNumber("packed_bytes", module.packed_bytes);
  json.EndObject();
}

// The JSON of the scheme that was asked for last: neighbours mostly have the same.
class LastScheme {
 public:
  const Json& JsonOf(const Scheme& scheme) {
    if (json_.is_null() || scheme != scheme_) {
      scheme_ = scheme;
      json_ = SchemeJson(scheme);
    }
    return json_;
  }

 private:
  Scheme scheme_;
  Json json_;
};

void WriteModuleSummary(const ModuleSummary& module, LastScheme& schemes, JsonWriter& json) {
  const JsonWriter::Line line(json);
  json.BeginObject();
  json.MemberText("module", module.module);
  json.Member("shape", {module.n, module.k});
  json.Member("scheme", schemes.JsonOf(module.scheme));
  json.Member("layout", module.layout.empty() ? Json(nullptr) : Json(module.layout));
  json.MemberNumber("bytes", module.bytes);
  json.Member("bits_per_weight", module.BitsPerWeight());
  json.Member("tensors", Json(module.tensors));
  json.Key("fused");
  json.BeginArray();
  if (module.fused != nullptr) {
    uint64_t first = 0;
    for (const FusedMember& member : *module.fused) {
      json.Value({{"module", member.module}, {"first", first}, {"n", member.n}});
      first += member.n;
    }
  }
  json.EndArray();
  json.EndObject();
}

void WriteTensor(const StoredTensor& tensor, const std::string& file, JsonWriter& json) {
  const JsonWriter::Line line(json);
  json.BeginObject();
  json.MemberText("name", tensor.name);
  json.MemberText("dtype", DTypeName(tensor.dtype));
  json.Member("shape", tensor.shape);
  json.MemberText("file", file);
  json.MemberNumber("offset", tensor.offset);
  json.MemberNumber("bytes", tensor.bytes);
  json.EndObject();
}

// Begins the document with its head; the caller ends it.
void BeginDocument(std::string_view kind, JsonWriter& json) {
  json.BeginObject();
  const Json head = JsonDocument(kind);
  for (const auto& [name, value] : head.items()) json.Member(name, value);
}

Json StatisticsJson(const ModuleCheck& module) {
  if (!module.figures) return nullptr;
  const CheckFigures& figures = *module.figures;
  const CheckFigures::Counts& counts = figures.counts;
  return {{"weights", module.weights()},
          {"distinct_codes", figures.distinct_codes},
          {"commonest_code", figures.commonest_code},
          {"commonest_fraction", figures.commonest_fraction},
          {"saturated_fraction", figures.saturated_fraction},
          {"mean_shift", figures.mean_shift},
          {"scales", figures.scales},
          {"min_scale", JsonNumber(figures.min_scale)},
          {"max_scale", JsonNumber(figures.max_scale)},
          {"negative_scales", counts.negative_scales},
          {"zero_scales", counts.zero_scales},
          {"imprecise_scales", counts.imprecise_scales},
          {"huge_scales", counts.huge_scales},
          {"scales_outside_f16", counts.scales_outside_f16},
          {"zero_points", counts.zero_points},
          {"low_zero_points", counts.low_zero_points},
          {"high_zero_points", counts.high_zero_points}};
}

Json DiffSideJson(const std::optional<DiffSide>& side) {
  if (!side) return nullptr;
  return {{"description", side->description}, {"shape", side->shape}};
}

Json ElementJson(const ElementSide& side) {
  Json json = {{"value", JsonNumber(side.value)}};
  if (side.stored) {
    json["code"] = side.stored->code;
    json["zero_point"] = side.stored->zero_point;
    json["scale"] = side.stored->scale;
  }
  return json;
}

Json ModuleDiffJson(const ModuleDiff& diff) {
  const WeightDifferences& differences = diff.differences;
  Json worst = Json::array();
  for (const WorstElement& element : differences.worst) {
    worst.push_back({{"n", element.n},
                     {"k", element.k},
                     {"a", ElementJson(element.a)},
                     {"b", ElementJson(element.b)}});
  }
  return {{"module", diff.module},
          {"verdict", DiffVerdictName(diff.verdict)},
          {"a", DiffSideJson(diff.a)},
          {"b", DiffSideJson(diff.b)},
          {"elements", differences.elements},
          {"differing", differences.unequal},
          {"beyond_rounding", differences.beyond},
          {"max_absolute", JsonNumber(differences.max_absolute)},
          {"max_relative", JsonNumber(differences.max_relative)},
          {"sqnr_db", JsonNumber(differences.SqnrDb())},
          {"worst", std::move(worst)}};
}

}  // namespace

Json FindingsJson(const std::vector<Finding>& findings) {
  Json json = Json::array();
  for (const Finding& finding : findings) {
    Json one = {{"id", finding.id},       {"severity", SeverityName(finding.severity)},
                {"where", finding.where}, {"message", finding.message},
                {"hint", finding.hint},   {"more", finding.more}};
    if (finding.accepted) one["accepted"] = true;
    json.push_back(std::move(one));
  }
  return json;
}

Json JsonNumber(const std::optional<double>& value) {
  return value && std::isfinite(*value) ? Json(*value) : Json(nullptr);
}

Json JsonDocument(std::string_view kind) {
  return {{"kind", kind}, {"version", 1}, {"prepack_version", kVersion}};
}

// Only what a script has to know: `prepack verify --json` has the rest.
Json VerificationJson(const VerifyReport* report) {
  if (report == nullptr) return nullptr;
  const VerifyReport& verified = *report;
  Json levels = Json::object();
  for (const Level level : kLevels) {
    levels[std::string(LevelName(level))] = LevelStateName(verified.level(level).state);
  }
  return {{"verdict", LevelStateName(verified.Verdict())}, {"levels", std::move(levels)}};
}

Json ConvertJson(const ConvertReport& report, const std::string& source,
                 const VerifyReport* verified) {
  Json json = JsonDocument("prepack-convert");
  json["source"] = source;
  json["output"] = report.output.string();
  json["part"] = report.part.Text();
  json["was_done"] = report.was_done;
  json["resumed_units"] = report.resumed_units;
  json["target"] = report.target;
  json["format"] = report.format;
  json["packed_modules"] = report.packed_modules;
  json["layouts"] = report.layouts.empty() ? Json::object() : Json(report.layouts);
  json["fused_modules"] = report.fused_modules;
  json["apart"] = report.apart.empty() ? Json::object() : Json(report.apart);
  json["kept"] = report.kept.empty() ? Json::object() : Json(report.kept);
  json["dequantized"] = report.dequantized.empty() ? Json::object() : Json(report.dequantized);
  json["rounded_scales"] = report.rounded_scales;
  json["copied_tensors"] = report.copied_tensors;
  json["source_bytes"] = report.source_bytes;
  json["output_bytes"] = report.output_bytes;
  json["shards"] = report.shards;
  json["source_fingerprint"] = report.source_fingerprint;
  json["not_copied"] = report.not_copied.empty() ? Json::array() : Json(report.not_copied);
  json["findings"] = FindingsJson(report.findings);
  json["verification"] = VerificationJson(verified);
  return json;
}

Json MergeJson(const MergeReport& report, const std::string& output) {
  Json json = JsonDocument("prepack-merge");
  json["output"] = output;
  json["target"] = report.target;
  json["parts"] = report.parts;
  json["packed_modules"] = report.packed_modules;
  json["layouts"] = report.layouts.empty() ? Json::object() : Json(report.layouts);
  json["copied_tensors"] = report.copied_tensors;
  json["output_bytes"] = report.output_bytes;
  json["shards"] = report.shards.size();
  json["source_fingerprint"] = report.source_fingerprint;
  json["files"] = Json::object();
  for (const MergedFile& shard : report.shards) json["files"][shard.file] = shard.from;
  return json;
}

void WritePlanJson(const Plan& plan, const QuantizedModel& model, const std::string& source,
                   JsonWriter& json) {
  BeginDocument("prepack-plan", json);
  json.MemberText("source", source);
  json.MemberText("target", plan.target->id);
  json.MemberText("format", model.format);
  json.MemberText("activation_dtype", ActivationDTypeName(plan.activation_dtype));
  json.MemberNumber("source_bytes", plan.source_bytes);
  json.MemberNumber("output_bytes", plan.output_bytes);
  json.MemberNumber("memory_per_thread_bytes", plan.PeakMemory(1));
  json.MemberNumber("packed_modules", plan.PackedModules());
  json.Member("apart", plan.apart.empty() ? Json::object() : Json(plan.apart));
  json.Key("choices");
  const auto choices = WriteChoices(plan, model.format, json);
  json.Key("modules");
  json.BeginArray();
  for (const ModulePlan& module : plan.modules) {
    WriteModulePlan(module, choices.at(&module.request), json);
  }
  json.EndArray();
  json.Member("findings", FindingsJson(model.findings));
  json.EndObject();
}

void WriteInspectJson(const InspectReport& report, const Json& summary, const Json& statistics,
                      JsonWriter& json) {
  BeginDocument("prepack-inspect", json);
  json.MemberText("path", report.path);
  json.MemberText("contents", FolderKindName(report.kind));
  json.Member("format", report.format.empty() ? Json(nullptr) : Json(report.format));
  json.Member("target", report.target.empty() ? Json(nullptr) : Json(report.target));
  json.Member("unreadable",
              report.unreadable ? Json(report.unreadable->ToString()) : Json(nullptr));
  json.Member("origin", OriginJson(report));
  json.MemberNumber("tensor_bytes", report.tensor_bytes);
  json.Member("summary", summary);
  json.Member("statistics", statistics);
  json.Key("files");
  json.BeginArray();
  for (const FileSummary& file : report.files) {
    json.Value({{"name", file.name},
                {"bytes", file.bytes},
                {"tensors", file.tensors},
                {"data_start", file.data_start}});
  }
  json.EndArray();
  json.Key("modules");
  json.BeginArray();
  LastScheme schemes;
  for (const ModuleSummary& module : report.modules) WriteModuleSummary(module, schemes, json);
  json.EndArray();
  json.Key("tensors");
  json.BeginArray();
  for (const StoredTensor* tensor : report.tensors) {
    WriteTensor(*tensor, report.files[tensor->file].name, json);
  }
  json.EndArray();
  json.Member("findings", FindingsJson(report.findings));
  json.EndObject();
}

Json CheckJson(const CheckReport& report, bool strict) {
  Json json = JsonDocument("prepack-check");
  json["source"] = report.source;
  json["baseline"] = report.baseline.empty() ? Json(nullptr) : Json(report.baseline);
  json["headers_only"] = report.headers_only;
  json["format"] = report.format.empty() ? Json(nullptr) : Json(report.format);
  json["tensors"] = report.tensors;
  json["tensor_bytes"] = report.tensor_bytes;
  json["verdict"] = CheckVerdictName(report.verdict);
  json["exit_code"] = CheckExitCode(report.verdict, strict);
  json["findings"] = FindingsJson(report.AllFindings());
  Json& modules = json["modules"] = Json::array();
  for (const ModuleCheck& module : report.modules) {
    modules.push_back({{"module", module.module},
                       {"shape", {module.n, module.k}},
                       {"scheme", SchemeJson(module.scheme)},
                       {"statistics", StatisticsJson(module)},
                       {"sqnr_db", JsonNumber(module.sqnr_db)}});
  }
  return json;
}

Json DiffJson(const DiffReport& report) {
  Json json = JsonDocument("prepack-diff");
  json["a"] = report.a;
  json["b"] = report.b;
  json["format_a"] = report.format_a.empty() ? Json(nullptr) : Json(report.format_a);
  json["format_b"] = report.format_b.empty() ? Json(nullptr) : Json(report.format_b);
  json["same"] = report.Same();
  Json& modules = json["modules"] = Json::array();
  for (const ModuleDiff& diff : report.modules) modules.push_back(ModuleDiffJson(diff));
  Json& tensors = json["tensors"] = Json::array();
  for (const TensorDiff& diff : report.tensors) {
    tensors.push_back({{"tensor", diff.tensor},
                       {"verdict", DiffVerdictName(diff.differences.verdict)},
                       {"a", DiffSideJson(diff.a)},
                       {"b", DiffSideJson(diff.b)},
                       {"differing", diff.differences.elements},
                       {"max_absolute", JsonNumber(diff.differences.max_absolute)}});
  }
  return json;
}

namespace {

std::string TextOf(const Extent& extent) {
  return extent.text().empty() ? fmt::format("{}", extent.value()) : std::string(extent.text());
}

std::string TextOf(const StoredDType& dtype) {
  return std::string(dtype.text().empty() ? DTypeName(dtype.value()) : dtype.text());
}

std::string TextOf(const DivisionRow& division) {
  if (division.kind == Division::Kind::kNever) return "never";
  if (division.kind == Division::Kind::kWhole) return "whole";
  return fmt::format("axis {}, by {}", division.axis, TextOf(division.unit));
}

Json TextsOf(const Extents& extents) {
  Json texts = Json::array();
  for (const Extent& extent : extents) texts.push_back(TextOf(extent));
  return texts;
}

Json PartRowsJson(const Layout& layout) {
  Json parts = Json::array();
  for (const PartRow& part : layout.PartRows()) {
    // Dequantized weights are in the order of the checkpoint.
    if (part.role == PartRole::kInputOrder && layout.for_dequantized) continue;
    parts.push_back({{"part", part.name},
                     {"dtype", TextOf(part.dtype)},
                     {"shape", TextsOf(part.shape)},
                     {"view", TextsOf(part.view)},
                     {"pieces_of_n", TextOf(part.by_outputs)},
                     {"pieces_of_k", TextOf(part.by_inputs)},
                     {"when", part.when.text().empty() ? "always" : part.when.text()}});
  }
  return parts;
}

Json ScalesJson(const Layout& layout) {
  if (!layout.HasScales()) return nullptr;
  return {{"dtype", TextOf(layout.scales.stored)}, {"values", TextOf(layout.scales.value)}};
}

Json ExampleJson(const Layout& layout) {
  const PackRequest request = DrawnExample(layout);
  const std::vector<PartSpec> parts = layout.Parts(request);
  const PartSpec& weight = *FindPart(parts, PartRole::kWeight);
  Json lines = Json::array();
  std::istringstream drawing(DrawWeight(layout, request));
  for (std::string line; std::getline(drawing, line);) lines.push_back(line);
  return {{"n", request.n},
          {"k", request.k},
          {"scheme", DescribeScheme(request.scheme)},
          {"bytes", TensorBytes(weight.dtype, weight.shape).value_or(0)},
          {"drawing", std::move(lines)}};
}

Json LayoutJson(const Layout& layout) {
  return {{"layout", layout.id},
          {"version", layout.version},
          {"consumer", layout.consumer},
          {"mirrors", layout.mirrors},
          {"schemes", layout.schemes},
          {"constraints", layout.constraints},
          {"isa", layout.isa},
          {"address", layout.address},
          {"notes", layout.notes},
          {"offered", layout.offered},
          {"for_dequantized", layout.for_dequantized},
          {"scales", ScalesJson(layout)},
          {"parts", PartRowsJson(layout)},
          {"example", ExampleJson(layout)},
          {"fingerprint", layout.fingerprint}};
}

}  // namespace

Json TargetsJson() {
  Json json = JsonDocument("prepack-targets");
  Json& targets = json["targets"] = Json::array();
  for (const Target& target : AllTargets()) {
    Json layouts = Json::array();
    for (const Layout* layout : LayoutsOfTarget(target.id)) layouts.push_back(LayoutJson(*layout));
    targets.push_back({{"target", target.id},
                       {"runtime", target.runtime},
                       {"checkpoint", target.checkpoint},
                       {"layouts", std::move(layouts)}});
  }
  return json;
}

}  // namespace prepack::cli
