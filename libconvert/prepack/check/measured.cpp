#include "prepack/check/measured.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "prepack/base/status.h"

namespace prepack {
namespace {

constexpr size_t kFloatDigits = 8;

struct StatisticsCount {
  std::string_view name;
  uint64_t ModuleStatistics::*value;
};
constexpr std::array kStatisticsCounts = {
    StatisticsCount{"weights", &ModuleStatistics::weights},
    StatisticsCount{"scales", &ModuleStatistics::scales},
    StatisticsCount{"negative_scales", &ModuleStatistics::negative_scales},
    StatisticsCount{"zero_scales", &ModuleStatistics::zero_scales},
    StatisticsCount{"imprecise_scales", &ModuleStatistics::imprecise_scales},
    StatisticsCount{"huge_scales", &ModuleStatistics::huge_scales},
    StatisticsCount{"scales_outside_f16", &ModuleStatistics::scales_outside_f16},
    StatisticsCount{"fine_scales", &ModuleStatistics::fine_scales},
    StatisticsCount{"scales_hash", &ModuleStatistics::scales_hash},
    StatisticsCount{"zero_points", &ModuleStatistics::zero_points},
    StatisticsCount{"low_zero_points", &ModuleStatistics::low_zero_points},
    StatisticsCount{"high_zero_points", &ModuleStatistics::high_zero_points},
    StatisticsCount{"stray_bits", &ModuleStatistics::stray_bits},
};

struct WindowsCount {
  std::string_view name;
  uint64_t WindowCounts::*value;
};
constexpr std::array kWindowsCounts = {
    WindowsCount{"windows", &WindowCounts::windows},
    WindowsCount{"shifted_windows", &WindowCounts::shifted_windows},
    WindowsCount{"noisy_windows", &WindowCounts::noisy_windows},
    WindowsCount{"column_windows", &WindowCounts::column_windows},
    WindowsCount{"shifted_columns", &WindowCounts::shifted_columns},
    WindowsCount{"noisy_columns", &WindowCounts::noisy_columns},
    WindowsCount{"constant_columns", &WindowCounts::constant_columns},
    WindowsCount{"repeated_columns", &WindowCounts::repeated_columns},
    WindowsCount{"codes_hash", &WindowCounts::codes_hash},
};

struct SpreadNumber {
  std::string_view name;
  double SpreadSums::*value;
};
constexpr std::array kSpreadNumbers = {
    SpreadNumber{"scale", &SpreadSums::scale},
    SpreadNumber{"codes", &SpreadSums::codes},
    SpreadNumber{"scale_squares", &SpreadSums::scale_squares},
    SpreadNumber{"codes_squares", &SpreadSums::codes_squares},
    SpreadNumber{"products", &SpreadSums::products},
};

// Place and value of what is not 0, one after the other.
template <typename Count>
Json CountsJson(const ByteCounts<Count>& counts) {
  Json json = Json::array();
  for (size_t i = 0; i < ByteCounts<Count>::kValues; ++i) {
    if (counts[i] == 0) continue;
    json.push_back(i);
    json.push_back(counts[i]);
  }
  return json;
}

template <typename Count>
void ReadCounts(JsonFields& fields, std::string_view key, ByteCounts<Count>& counts) {
  const std::vector<uint64_t> pairs = fields.Uints(key);
  for (size_t i = 0; i < pairs.size(); i += 2) {
    // Ascending, so that no place counts twice.
    const bool ascends = i == 0 || pairs[i] > pairs[i - 2];
    if (ascends && i + 1 < pairs.size() && pairs[i] < ByteCounts<Count>::kValues &&
        std::in_range<Count>(pairs[i + 1])) {
      counts.Add(static_cast<size_t>(pairs[i]), static_cast<Count>(pairs[i + 1]));
      continue;
    }
    fields.Keep(Malformed(fields.where(),
                          fmt::format("field \"{}\" is no list of ascending places below 256 "
                                      "with their counts",
                                      key)));
    return;
  }
}

// Eight hex digits each: exact, and short.
std::string FloatsText(std::span<const float> values) {
  std::string text;
  text.reserve(values.size() * kFloatDigits);
  for (const float value : values) text += fmt::format("{:08x}", std::bit_cast<uint32_t>(value));
  return text;
}

std::vector<float> ReadFloatsText(JsonFields& fields, std::string_view key) {
  const std::string text = fields.Text(key);
  std::vector<float> values(text.size() / kFloatDigits);
  bool fits = text.size() % kFloatDigits == 0;
  for (size_t i = 0; fits && i < values.size(); ++i) {
    const char* begin = text.data() + i * kFloatDigits;
    uint32_t bits = 0;
    const auto [end, error] = std::from_chars(begin, begin + kFloatDigits, bits, 16);
    fits = error == std::errc() && end == begin + kFloatDigits;
    values[i] = std::bit_cast<float>(bits);
  }
  if (fits) return values;
  fields.Keep(Malformed(fields.where(),
                        fmt::format("field \"{}\" is not made of eight hex digits each", key)));
  return {};
}

Json StatisticsCountsJson(const ModuleStatistics& statistics) {
  Json json = Json::object();
  for (const StatisticsCount& count : kStatisticsCounts) {
    json[std::string(count.name)] = statistics.*count.value;
  }
  json["histogram"] = CountsJson(statistics.histogram);
  json["scale_exponents"] = CountsJson(statistics.scale_exponents);
  json["min_scale"] = ExactNumber(statistics.min_scale);
  json["max_scale"] = ExactNumber(statistics.max_scale);
  json["sum"] = ExactNumber(statistics.sum);
  json["sum_squares"] = ExactNumber(statistics.sum_squares);
  Json spread = {{"groups", statistics.spread.groups}};
  for (const SpreadNumber& number : kSpreadNumbers) {
    spread[std::string(number.name)] = ExactNumber(statistics.spread.*number.value);
  }
  json["spread"] = std::move(spread);
  Json windows = Json::object();
  for (const WindowsCount& count : kWindowsCounts) {
    windows[std::string(count.name)] = statistics.windows.*count.value;
  }
  windows["empty_scale_exponents"] = CountsJson(statistics.windows.empty_scale_exponents);
  json["windows"] = std::move(windows);
  return json;
}

ModuleStatistics ReadStatisticsCounts(JsonFields fields) {
  ModuleStatistics statistics;
  for (const StatisticsCount& count : kStatisticsCounts) {
    statistics.*count.value = fields.Uint(count.name);
  }
  ReadCounts(fields, "histogram", statistics.histogram);
  ReadCounts(fields, "scale_exponents", statistics.scale_exponents);
  statistics.min_scale = static_cast<float>(ReadExactNumber(fields, "min_scale"));
  statistics.max_scale = static_cast<float>(ReadExactNumber(fields, "max_scale"));
  statistics.sum = ReadExactNumber(fields, "sum");
  statistics.sum_squares = ReadExactNumber(fields, "sum_squares");
  JsonFields spread = fields.In("spread");
  statistics.spread.groups = spread.Uint("groups");
  for (const SpreadNumber& number : kSpreadNumbers) {
    statistics.spread.*number.value = ReadExactNumber(spread, number.name);
  }
  JsonFields windows = fields.In("windows");
  for (const WindowsCount& count : kWindowsCounts) {
    statistics.windows.*count.value = windows.Uint(count.name);
  }
  ReadCounts(windows, "empty_scale_exponents", statistics.windows.empty_scale_exponents);
  return statistics;
}

Json FindingsAsMeasured(const std::vector<Finding>& findings) {
  Json json = Json::array();
  for (const Finding& finding : findings) {
    json.push_back({{"id", finding.id},
                    {"severity", SeverityName(finding.severity)},
                    {"where", finding.where},
                    {"message", finding.message},
                    {"hint", !finding.hint.empty()},
                    {"more", finding.more},
                    {"accepted", finding.accepted}});
  }
  return json;
}

Finding ReadFindingAsMeasured(JsonFields fields) {
  const std::string id = fields.Text("id");
  const std::string severity = fields.Text("severity");
  constexpr std::array kSeverities = {Severity::kInfo, Severity::kWarning, Severity::kError};
  const auto kind = std::ranges::find(AllFindingKinds(), std::string_view(id), &FindingKind::id);
  const auto grave = std::ranges::find(kSeverities, std::string_view(severity), SeverityName);
  if (kind == AllFindingKinds().end() || grave == kSeverities.end()) {
    fields.Keep(Malformed(fields.where(), "not a finding of this version of prepack")
                    .Found(fmt::format("{} {}", severity, id)));
    return {};
  }
  return {.id = kind->id,
          .severity = *grave,
          .where = fields.Text("where"),
          .message = fields.Text("message"),
          .hint = fields.Bool("hint") ? kind->hint : std::string_view(),
          .more = fields.Uint("more"),
          .accepted = fields.Bool("accepted")};
}

std::vector<Finding> ReadFindingsAsMeasured(JsonFields& fields, std::string_view key) {
  std::vector<Finding> findings;
  const Json* array = fields.Array(key);
  for (size_t i = 0; i < array->size() && fields.ok(); ++i) {
    findings.push_back(ReadFindingAsMeasured(fields.In((*array)[i], key, i)));
  }
  return findings;
}

}  // namespace

Json MeasuredAs<ModuleMeasurement>::Write(const ModuleMeasurement& module) {
  Json json = Json::object();
  json["stopped"] = module.error.ok() ? Json(nullptr) : StatusJson(module.error);
  json["findings"] = FindingsAsMeasured(module.findings);
  json["statistics"] = module.statistics ? StatisticsCountsJson(*module.statistics) : Json(nullptr);
  json["energies"] = FloatsText(module.energies);
  json["sqnr_db"] = ExactNumberOrNull(module.sqnr_db);
  return json;
}

ModuleMeasurement MeasuredAs<ModuleMeasurement>::Read(JsonFields& fields) {
  ModuleMeasurement module;
  if (const Json* error = fields.ObjectOrNull("stopped"); error != nullptr) {
    module.error = ReadStatus(fields.In(*error, "stopped"));
  }
  module.findings = ReadFindingsAsMeasured(fields, "findings");
  if (const Json* statistics = fields.ObjectOrNull("statistics"); statistics != nullptr) {
    module.statistics = ReadStatisticsCounts(fields.In(*statistics, "statistics"));
  }
  module.energies = ReadFloatsText(fields, "energies");
  module.sqnr_db = ReadExactNumberOrNull(fields, "sqnr_db");
  return module;
}

Json MeasuredAs<PlainMeasurement>::Write(const PlainMeasurement& tensor) {
  const PlainStatistics& statistics = tensor.statistics;
  return {{"not_finite", tensor.not_finite},
          {"first_offset", tensor.first_offset},
          {"bytes", statistics.bytes},
          {"zero_bytes", statistics.zero_bytes},
          {"count", statistics.exponents.count},
          {"sum", statistics.exponents.sum},
          {"squares", statistics.exponents.squares}};
}

PlainMeasurement MeasuredAs<PlainMeasurement>::Read(JsonFields& fields) {
  PlainMeasurement tensor{.not_finite = fields.Uint("not_finite"),
                          .first_offset = fields.Uint("first_offset"),
                          .statistics = {}};
  tensor.statistics.bytes = fields.Uint("bytes");
  tensor.statistics.zero_bytes = fields.Uint("zero_bytes");
  tensor.statistics.exponents.count = fields.Uint("count");
  tensor.statistics.exponents.sum = fields.Uint("sum");
  tensor.statistics.exponents.squares = fields.Uint("squares");
  return tensor;
}

Json MeasuredAs<DifferentValues>::Write(const DifferentValues& values) {
  return {{"count", values.count}};
}

DifferentValues MeasuredAs<DifferentValues>::Read(JsonFields& fields) {
  return {.count = fields.Uint("count")};
}

Json MeasuredAs<MlpWiring>::Write(const MlpWiring& wiring) {
  Json json = {{"without", Json::array()}, {"fault", nullptr}};
  for (const double figure : wiring.without)
    json["without"].push_back({{"wiring", ExactNumber(figure)}});
  if (wiring.fault) {
    json["fault"] = {{"module", wiring.fault->module},
                     {"message", wiring.fault->message},
                     {"exchanged", wiring.fault->exchanged},
                     {"needs_peers", wiring.fault->needs_peers}};
  }
  return json;
}

MlpWiring MeasuredAs<MlpWiring>::Read(JsonFields& fields) {
  MlpWiring wiring;
  const Json* without = fields.Array("without");
  if (without->size() != wiring.without.size()) {
    fields.Keep(
        Malformed(fields.where(), "field \"without\" has another number of elements than 3"));
    return wiring;
  }
  for (size_t i = 0; i < without->size(); ++i) {
    JsonFields figure = fields.In((*without)[i], "without", i);
    wiring.without[i] = ReadExactNumber(figure, "wiring");
  }
  if (const Json* fault = fields.ObjectOrNull("fault"); fault != nullptr) {
    JsonFields members = fields.In(*fault, "fault");
    wiring.fault = {.module = static_cast<size_t>(members.Uint("module", 0, 2)),
                    .message = members.Text("message"),
                    .exchanged = members.Bool("exchanged"),
                    .needs_peers = members.Bool("needs_peers")};
  }
  return wiring;
}

Json MeasuredAs<std::vector<Finding>>::Write(const std::vector<Finding>& findings) {
  return {{"findings", FindingsAsMeasured(findings)}};
}

std::vector<Finding> MeasuredAs<std::vector<Finding>>::Read(JsonFields& fields) {
  return ReadFindingsAsMeasured(fields, "findings");
}

}  // namespace prepack
