#include "prepack/verify/report/json.h"

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
#include "prepack/container/required_fields.h"
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

// The members of one object. The first error stays in `status`, and values read after it mean
// nothing, so readers check the status once, at the end.
class Members {
 public:
  Members(const Json& object, std::string where, Status& status)
      : object_(&object), where_(std::move(where)), status_(&status) {}

  bool ok() const { return status_->ok(); }

  std::string Text(std::string_view key) { return Take(StringField(*object_, key, where_)); }
  uint64_t Uint(std::string_view key) { return Take(UintField(*object_, key, where_)); }
  bool Bool(std::string_view key) { return Take(BoolField(*object_, key, where_)); }
  std::string TextOrNull(std::string_view key) { return IsNull(key) ? "" : Text(key); }
  std::optional<bool> BoolOrNull(std::string_view key) {
    return IsNull(key) ? std::nullopt : std::optional(Bool(key));
  }
  double Figure(std::string_view key);
  std::optional<double> FigureOrNull(std::string_view key) {
    return IsNull(key) ? std::nullopt : std::optional(Figure(key));
  }
  LevelState State(std::string_view key);

  // An object, or null if it is not one (the error is then kept).
  const Json* Object(std::string_view key) { return Take(ObjectField(*object_, key, where_)); }
  const Json* ObjectOrNull(std::string_view key) { return IsNull(key) ? nullptr : Object(key); }
  const Json* Array(std::string_view key) { return Take(ArrayField(*object_, key, where_)); }

  Members In(const Json& child, std::string_view key) {
    return {child, fmt::format("{}: {}", where_, key), *status_};
  }
  Members In(const Json& child, std::string_view key, size_t index) {
    return {child, fmt::format("{}: {}[{}]", where_, key, index), *status_};
  }

  void Keep(Status status) {
    if (status_->ok()) *status_ = std::move(status);
  }
  const std::string& where() const { return where_; }

 private:
  template <typename T>
  T Take(Result<T> field) {
    if (field.ok()) return *std::move(field);
    Keep(field.status());
    return T{};
  }

  // Whether the member exists and is null. If it is missing, the function that reads it reports
  // that.
  bool IsNull(std::string_view key) const {
    if (!object_->is_object()) return false;
    const auto it = object_->find(key);
    return it != object_->end() && it->is_null();
  }

  const Json* object_;
  std::string where_;
  Status* status_;
};

double Members::Figure(std::string_view key) {
  if (object_->is_object()) {
    const auto it = object_->find(key);
    if (it != object_->end() && it->is_number()) return it->get<double>();
  }
  const std::string word = Text(key);
  if (word == kInfinite) return std::numeric_limits<double>::infinity();
  if (word == kMinusInfinite) return -std::numeric_limits<double>::infinity();
  if (word != kNothingToCompare) {
    Keep(Malformed(where_, fmt::format("field \"{}\" is not a figure", key))
             .Found(word)
             .Expected(fmt::format("a number, \"{}\", \"{}\" or \"{}\"", kInfinite, kMinusInfinite,
                                   kNothingToCompare)));
  }
  return std::numeric_limits<double>::quiet_NaN();
}

LevelState Members::State(std::string_view key) {
  const std::string word = Text(key);
  for (const LevelState state : {LevelState::kPassed, LevelState::kFailed, LevelState::kNotRun}) {
    if (word == LevelStateName(state)) return state;
  }
  Keep(Malformed(where_, fmt::format("field \"{}\" is not a state", key))
           .Found(word)
           .Expected("passed, failed or not run"));
  return LevelState::kNotRun;
}

std::vector<Problem> ReadProblems(Members& level, std::string_view key) {
  std::vector<Problem> problems;
  const Json* array = level.Array(key);
  if (array == nullptr) return problems;
  for (size_t i = 0; i < array->size() && level.ok(); ++i) {
    Members problem = level.In((*array)[i], key, i);
    problems.push_back({.module = problem.TextOrNull("module"),
                        .where = problem.Text("where"),
                        .message = problem.Text("message")});
  }
  return problems;
}

LevelResult ReadLevel(Members level) {
  LevelResult result;
  result.state = level.State("state");
  result.asked = level.Bool("asked");
  result.reason = level.Text("reason");
  result.problems = ReadProblems(level, "problems");
  result.notes = ReadProblems(level, "notes");
  return result;
}

Figure ReadComparison(Members& input, std::string_view key) {
  Figure figure;
  const Json* object = input.Object(key);
  if (object == nullptr) return figure;
  Members members = input.In(*object, key);
  figure.sqnr_db = members.Figure("sqnr_db");
  figure.cosine = members.Figure("cosine");
  figure.max_abs_error = members.Figure("max_abs_error");
  figure.worst_channel = members.Uint("worst_channel");
  figure.worst_channel_sqnr_db = members.Figure("worst_channel_sqnr_db");
  return figure;
}

GemmFigures ReadGemm(Members gemm) {
  GemmFigures figures;
  figures.implementation = gemm.Text("implementation");
  figures.activations = gemm.Text("activations");
  figures.second_implementation = gemm.TextOrNull("second_implementation");
  figures.agreement_db = gemm.FigureOrNull("agreement_db");
  const Json* inputs = gemm.Array("inputs");
  if (inputs == nullptr) return figures;
  for (size_t i = 0; i < inputs->size() && gemm.ok(); ++i) {
    Members input = gemm.In((*inputs)[i], "inputs", i);
    figures.inputs.push_back({.input = input.Text("input"),
                              .rows = input.Uint("rows"),
                              .kernel = ReadComparison(input, "kernel"),
                              .end_to_end = ReadComparison(input, "end_to_end"),
                              .kernel_bar_db = input.Figure("kernel_bar_db"),
                              .end_to_end_bar_db = input.FigureOrNull("end_to_end_bar_db")});
  }
  return figures;
}

QualityFigures ReadQuality(Members quality) {
  return {.weight_sqnr_db = quality.FigureOrNull("weight_sqnr_db"),
          .output_sqnr_db = quality.FigureOrNull("output_sqnr_db"),
          .below_peers_db = quality.FigureOrNull("below_peers_db")};
}

Sample ReadSample(Members sample) {
  Sample result{.fraction = sample.Figure("fraction"),
                .seed = sample.Uint("seed"),
                .modules = sample.Uint("modules")};
  if (sample.ok() && !(result.fraction > 0 && result.fraction <= 1)) {
    sample.Keep(Malformed(sample.where(), "field \"fraction\" is not above 0 and at most 1"));
  }
  return result;
}

void ReadShape(const Json& json, Members& members, ModuleVerification& module) {
  const Result<std::vector<uint64_t>> shape = UintArrayField(json, "shape", members.where());
  if (!shape.ok()) {
    members.Keep(shape.status());
  } else if (shape->size() != 2) {
    members.Keep(Malformed(members.where(), "field \"shape\" is not [N, K]"));
  } else {
    module.n = (*shape)[0];
    module.k = (*shape)[1];
  }
}

ModuleVerification ReadModule(const Json& json, Members members) {
  ModuleVerification module;
  module.module = members.Text("module");
  module.layout = members.Text("layout");
  ReadShape(json, members, module);
  module.looked_at = members.Bool("looked_at");
  if (const Json* levels = members.Object("levels"); levels != nullptr) {
    Members states = members.In(*levels, "levels");
    for (const Level level : kLevels) module.state(level) = states.State(LevelName(level));
  }
  module.exact = members.BoolOrNull("exact");
  module.max_scale_difference = members.FigureOrNull("max_scale_difference");
  if (const Json* gemm = members.ObjectOrNull("gemm"); gemm != nullptr) {
    module.gemm = ReadGemm(members.In(*gemm, "gemm"));
  }
  if (const Json* quality = members.ObjectOrNull("quality"); quality != nullptr) {
    module.quality = ReadQuality(members.In(*quality, "quality"));
  }
  return module;
}

void ReadModules(Members& members, VerifyReport& report) {
  const Json* modules = members.Array("modules");
  if (modules == nullptr) return;
  std::set<std::string> names;
  for (size_t i = 0; i < modules->size() && members.ok(); ++i) {
    Members module = members.In((*modules)[i], "modules", i);
    report.modules.push_back(ReadModule((*modules)[i], module));
    const std::string& name = report.modules.back().module;
    if (!names.insert(name).second) {
      module.Keep(Malformed(module.where(), "the report has this module twice").Found(name));
    }
  }
}

void ReadLevels(Members& members, VerifyReport& report) {
  if (const Json* levels = members.Object("levels"); levels != nullptr) {
    Members in_levels = members.In(*levels, "levels");
    for (const Level level : kLevels) {
      const Json* json = in_levels.Object(LevelName(level));
      if (json == nullptr) return;
      report.level(level) = ReadLevel(in_levels.In(*json, LevelName(level)));
    }
  }
  if (const Json* json = members.Object("regression"); json != nullptr) {
    Members regression = members.In(*json, "regression");
    report.regression = ReadLevel(regression);
    report.against = regression.TextOrNull("against");
  }
}

// Kind and version, before anything else in the document is read.
Status CheckIsReport(const Json& json, std::string_view where) {
  constexpr std::string_view kHint = "Give a file that `prepack verify --json` printed";
  const Result<std::string> kind = StringField(json, "kind", where);
  if (!kind.ok()) return Status(kind.status()).Hint(kHint);
  if (*kind != kVerifyReportKind) {
    return Malformed(where, "not a report of prepack verify")
        .Found(*kind)
        .Expected(kVerifyReportKind)
        .Hint(kHint);
  }
  PREPACK_TRY_ASSIGN(const uint64_t version, UintField(json, "version", where));
  if (version == kVerifyReportVersion) return {};
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
  Members members(json, std::string(where), status);
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
