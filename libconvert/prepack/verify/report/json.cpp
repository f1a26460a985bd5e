#include "prepack/verify/report/writers.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/base/version.h"
#include "prepack/container/json.h"
#include "prepack/container/json_fields.h"
#include "prepack/io/file.h"

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
               {"channels", gemm->channels},
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

namespace {

double ReadFigure(JsonFields& fields, std::string_view key) {
  const Json* value = fields.Any(key);
  if (value != nullptr && value->is_number()) return value->get<double>();
  const std::string word = fields.Text(key);
  if (word == kInfinite) return std::numeric_limits<double>::infinity();
  if (word == kMinusInfinite) return -std::numeric_limits<double>::infinity();
  if (word != kNothingToCompare) {
    fields.Keep(Malformed(fields.where(), fmt::format("field \"{}\" is not a figure", key))
                    .Found(word)
                    .Expected(fmt::format("a number, \"{}\", \"{}\" or \"{}\"", kInfinite,
                                          kMinusInfinite, kNothingToCompare)));
  }
  return std::numeric_limits<double>::quiet_NaN();
}

std::optional<double> ReadFigureOrNull(JsonFields& fields, std::string_view key) {
  return fields.IsNull(key) ? std::nullopt : std::optional(ReadFigure(fields, key));
}

LevelState ReadState(JsonFields& fields, std::string_view key) {
  const std::string word = fields.Text(key);
  for (const LevelState state : {LevelState::kPassed, LevelState::kFailed, LevelState::kNotRun}) {
    if (word == LevelStateName(state)) return state;
  }
  fields.Keep(Malformed(fields.where(), fmt::format("field \"{}\" is not a state", key))
                  .Found(word)
                  .Expected("passed, failed or not run"));
  return LevelState::kNotRun;
}

std::vector<Problem> ReadProblems(JsonFields& level, std::string_view key) {
  std::vector<Problem> problems;
  const Json& array = *level.Array(key);
  for (size_t i = 0; i < array.size() && level.ok(); ++i) {
    JsonFields problem = level.In(array[i], key, i);
    problems.push_back({.module = problem.TextOrNull("module"),
                        .where = problem.Text("where"),
                        .message = problem.Text("message")});
  }
  return problems;
}

LevelResult ReadLevel(JsonFields level) {
  LevelResult result;
  result.state = ReadState(level, "state");
  result.asked = level.Bool("asked");
  result.reason = level.Text("reason");
  result.problems = ReadProblems(level, "problems");
  result.notes = ReadProblems(level, "notes");
  return result;
}

Figure ReadComparison(JsonFields& input, std::string_view key) {
  Figure figure;
  JsonFields members = input.In(key);
  figure.sqnr_db = ReadFigure(members, "sqnr_db");
  figure.cosine = ReadFigure(members, "cosine");
  figure.max_abs_error = ReadFigure(members, "max_abs_error");
  figure.worst_channel = members.Uint("worst_channel");
  figure.worst_channel_sqnr_db = ReadFigure(members, "worst_channel_sqnr_db");
  return figure;
}

GemmFigures ReadGemm(JsonFields gemm) {
  GemmFigures figures;
  figures.implementation = gemm.Text("implementation");
  figures.activations = gemm.Text("activations");
  if (gemm.Has("channels")) figures.channels = gemm.Uint("channels");
  figures.second_implementation = gemm.TextOrNull("second_implementation");
  figures.agreement_db = ReadFigureOrNull(gemm, "agreement_db");
  const Json& inputs = *gemm.Array("inputs");
  for (size_t i = 0; i < inputs.size() && gemm.ok(); ++i) {
    JsonFields input = gemm.In(inputs[i], "inputs", i);
    figures.inputs.push_back({.input = input.Text("input"),
                              .rows = input.Uint("rows"),
                              .kernel = ReadComparison(input, "kernel"),
                              .end_to_end = ReadComparison(input, "end_to_end"),
                              .kernel_bar_db = ReadFigure(input, "kernel_bar_db"),
                              .end_to_end_bar_db = ReadFigureOrNull(input, "end_to_end_bar_db")});
  }
  return figures;
}

QualityFigures ReadQuality(JsonFields quality) {
  return {.weight_sqnr_db = ReadFigureOrNull(quality, "weight_sqnr_db"),
          .output_sqnr_db = ReadFigureOrNull(quality, "output_sqnr_db"),
          .below_peers_db = ReadFigureOrNull(quality, "below_peers_db")};
}

Sample ReadSample(JsonFields sample) {
  Sample result{.fraction = ReadFigure(sample, "fraction"),
                .seed = sample.Uint("seed"),
                .modules = sample.Uint("modules")};
  if (sample.ok() && !(result.fraction > 0 && result.fraction <= 1)) {
    sample.Keep(Malformed(sample.where(), "field \"fraction\" is not above 0 and at most 1"));
  }
  return result;
}

void ReadShape(JsonFields& members, ModuleVerification& module) {
  const std::vector<uint64_t> shape = members.Uints("shape");
  if (shape.size() != 2) {
    members.Keep(Malformed(members.where(), "field \"shape\" is not [N, K]"));
    return;
  }
  module.n = shape[0];
  module.k = shape[1];
}

ModuleVerification ReadModule(JsonFields members) {
  ModuleVerification module;
  module.module = members.Text("module");
  module.layout = members.Text("layout");
  ReadShape(members, module);
  module.looked_at = members.Bool("looked_at");
  JsonFields states = members.In("levels");
  for (const Level level : kLevels) module.state(level) = ReadState(states, LevelName(level));
  module.exact = members.BoolOrNull("exact");
  module.max_scale_difference = ReadFigureOrNull(members, "max_scale_difference");
  if (const Json* gemm = members.ObjectOrNull("gemm"); gemm != nullptr) {
    module.gemm = ReadGemm(members.In(*gemm, "gemm"));
  }
  if (const Json* quality = members.ObjectOrNull("quality"); quality != nullptr) {
    module.quality = ReadQuality(members.In(*quality, "quality"));
  }
  return module;
}

void ReadModules(JsonFields& members, VerifyReport& report) {
  const Json& modules = *members.Array("modules");
  std::set<std::string> names;
  for (size_t i = 0; i < modules.size() && members.ok(); ++i) {
    JsonFields module = members.In(modules[i], "modules", i);
    report.modules.push_back(ReadModule(module));
    const std::string& name = report.modules.back().module;
    if (!names.insert(name).second) {
      module.Keep(Malformed(module.where(), "the report has this module twice").Found(name));
    }
  }
}

void ReadLevels(JsonFields& members, VerifyReport& report) {
  JsonFields levels = members.In("levels");
  for (const Level level : kLevels) report.level(level) = ReadLevel(levels.In(LevelName(level)));
  JsonFields regression = members.In("regression");
  report.regression = ReadLevel(regression);
  report.against = regression.TextOrNull("against");
}

// Kind and version, before anything else in the document is read.
Status CheckIsReport(const Json& json, std::string_view where) {
  constexpr std::string_view kHint = "Give a file that `prepack verify --json` printed";
  Status status;
  JsonFields head(json, std::string(where), status);
  const std::string kind = head.Text("kind");
  if (!status.ok()) return std::move(status).Hint(kHint);
  if (kind != kVerifyReportKind) {
    return Malformed(where, "not a report of prepack verify")
        .Found(kind)
        .Expected(kVerifyReportKind)
        .Hint(kHint);
  }
  const uint64_t version = head.Uint("version");
  if (!status.ok() || version == kVerifyReportVersion) return status;
  return Unsupported(where, "the report has another format version than this prepack reads")
      .Found(fmt::format("{}", version))
      .Expected(fmt::format("{}", kVerifyReportVersion))
      .Hint("Verify the earlier folder again, with this version of prepack");
}

}  // namespace

Result<VerifyReport> ParseVerifyReport(std::string_view text, std::string_view where) {
  // 100 values and more per module; the rest of the time and memory is bounded by the file's size.
  constexpr JsonLimits kLimits{.max_depth = 16, .max_values = 20'000'000};
  PREPACK_TRY_ASSIGN(const Json json, ParseJsonStrict(text, where, kLimits));
  Status status = CheckIsReport(json, where);
  if (!status.ok()) return status;
  VerifyReport report;
  JsonFields members(json, std::string(where), status);
  report.folder = members.Text("folder");
  report.source = members.TextOrNull("source");
  report.source_found = members.Bool("source_found");
  report.baseline = members.TextOrNull("baseline");
  report.activations = members.TextOrNull("activations");
  report.target = members.Text("target");
  report.engine = members.TextOrNull("engine");
  if (const Json* sample = members.ObjectOrNull("sample"); sample != nullptr) {
    report.sample = ReadSample(members.In(*sample, "sample"));
  }
  ReadLevels(members, report);
  ReadModules(members, report);
  if (!status.ok()) return status;
  return report;
}

Result<VerifyReport> ReadVerifyReport(const std::filesystem::path& path) {
  const Result<std::string> text = ReadTextFile(path, kMaxReportBytes);
  if (!text.ok()) {
    std::error_code error;
    const bool too_large = std::filesystem::file_size(path, error) > kMaxReportBytes && !error;
    constexpr std::string_view kHint =
        "Compare samples: `prepack verify --sample 0.1` takes the same modules each time, and its "
        "report is smaller";
    return too_large ? Status(text.status()).Hint(kHint) : text.status();
  }
  return ParseVerifyReport(*text, path.string());
}

}  // namespace prepack
