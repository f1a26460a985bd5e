#include "verify/report_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/version.h"

namespace prepack {
namespace {

Json FigureJson(double value) {
  if (std::isnan(value)) return kNothingToCompare;
  if (std::isinf(value)) return value > 0 ? kInfinite : kMinusInfinite;
  return value;
}

Json FigureJson(const std::optional<double>& value) {
  return value ? FigureJson(*value) : Json(nullptr);
}

Json TextOrNull(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

Json ProblemsJson(const std::vector<Problem>& problems) {
  Json json = Json::array();
  for (const Problem& problem : problems) {
    json.push_back({{"module", TextOrNull(problem.module)},
                    {"where", problem.where},
                    {"message", problem.message}});
  }
  return json;
}

Json LevelJson(const LevelResult& level) {
  return {{"state", LevelStateName(level.state)},
          {"asked", level.asked},
          {"reason", level.reason},
          {"problems", ProblemsJson(level.problems)},
          {"notes", ProblemsJson(level.notes)}};
}

Json ComparisonJson(const Figure& figure) {
  return {{"sqnr_db", FigureJson(figure.sqnr_db)},
          {"cosine", FigureJson(figure.cosine)},
          {"max_abs_error", FigureJson(figure.max_abs_error)},
          {"worst_channel", figure.worst_channel},
          {"worst_channel_sqnr_db", FigureJson(figure.worst_channel_sqnr_db)}};
}

Json GemmJson(const std::optional<GemmFigures>& gemm) {
  if (!gemm) return nullptr;
  Json json = {{"implementation", gemm->implementation},
               {"activations", gemm->activations},
               {"second_implementation", TextOrNull(gemm->second_implementation)},
               {"agreement_db", FigureJson(gemm->agreement_db)},
               {"inputs", Json::array()}};
  for (const InputFigures& input : gemm->inputs) {
    json["inputs"].push_back({{"input", input.input},
                              {"rows", input.rows},
                              {"kernel", ComparisonJson(input.kernel)},
                              {"end_to_end", ComparisonJson(input.end_to_end)},
                              {"kernel_bar_db", FigureJson(input.kernel_bar_db)},
                              {"end_to_end_bar_db", FigureJson(input.end_to_end_bar_db)}});
  }
  return json;
}

Json QualityJson(const std::optional<QualityFigures>& quality) {
  if (!quality) return nullptr;
  return {{"weight_sqnr_db", FigureJson(quality->weight_sqnr_db)},
          {"output_sqnr_db", FigureJson(quality->output_sqnr_db)},
          {"below_peers_db", FigureJson(quality->below_peers_db)}};
}

Json SampleJson(const std::optional<Sample>& sample) {
  if (!sample) return nullptr;
  return {{"fraction", sample->fraction}, {"seed", sample->seed}, {"modules", sample->modules}};
}

Json ModuleJson(const ModuleVerification& module) {
  Json levels = Json::object();
  for (const Level level : kLevels) levels[LevelName(level)] = LevelStateName(module.state(level));
  return {{"module", module.module},
          {"layout", module.layout},
          {"shape", {module.n, module.k}},
          {"looked_at", module.looked_at},
          {"levels", std::move(levels)},
          {"exact", module.exact ? Json(*module.exact) : Json(nullptr)},
          {"max_scale_difference", FigureJson(module.max_scale_difference)},
          {"gemm", GemmJson(module.gemm)},
          {"quality", QualityJson(module.quality)}};
}

}  // namespace

Json VerifyReportJson(const VerifyReport& report) {
  Json json = {{"kind", kVerifyReportKind},
               {"version", kVerifyReportVersion},
               {"prepack_version", kVersion},
               {"folder", report.folder},
               {"source", TextOrNull(report.source)},
               {"source_found", report.source_found},
               {"baseline", TextOrNull(report.baseline)},
               {"activations", TextOrNull(report.activations)},
               {"target", report.target},
               {"engine", TextOrNull(report.engine)},
               {"sample", SampleJson(report.sample)},
               {"verdict", LevelStateName(report.Verdict())}};
  Json& levels = json["levels"] = Json::object();
  for (const Level level : kLevels) levels[LevelName(level)] = LevelJson(report.level(level));
  json["regression"] = LevelJson(report.regression);
  json["regression"]["against"] = TextOrNull(report.against);
  Json& modules = json["modules"] = Json::array();
  for (const ModuleVerification& module : report.modules) modules.push_back(ModuleJson(module));
  return json;
}

}  // namespace prepack
