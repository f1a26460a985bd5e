#include "prepack/check/measured.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/check/wiring.h"
#include "prepack/measure/members.h"

namespace prepack {
// Place and value of what is not 0, one after the other.
template <typename Count>
struct MeasuredMember<ByteCounts<Count>> {
  static Json Write(const ByteCounts<Count>& counts) {
    Json json = Json::array();
    for (size_t i = 0; i < ByteCounts<Count>::kValues; ++i) {
      if (counts[i] == 0) continue;
      json.push_back(i);
      json.push_back(counts[i]);
    }
    return json;
  }
  static ByteCounts<Count> Read(JsonFields& fields, std::string_view key) {
    ByteCounts<Count> counts;
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
      break;
    }
    return counts;
  }
};

// Eight hex digits each: exact, and short.
template <>
struct MeasuredMember<std::vector<float>> {
  static constexpr size_t kDigits = 8;

  static Json Write(const std::vector<float>& values) {
    std::string text;
    text.reserve(values.size() * kDigits);
    for (const float value : values) text += fmt::format("{:08x}", std::bit_cast<uint32_t>(value));
    return text;
  }
  static std::vector<float> Read(JsonFields& fields, std::string_view key) {
    const std::string text = fields.Text(key);
    std::vector<float> values(text.size() / kDigits);
    bool fits = text.size() % kDigits == 0;
    for (size_t i = 0; fits && i < values.size(); ++i) {
      const char* begin = text.data() + i * kDigits;
      uint32_t bits = 0;
      const auto [end, error] = std::from_chars(begin, begin + kDigits, bits, 16);
      fits = error == std::errc() && end == begin + kDigits;
      values[i] = std::bit_cast<float>(bits);
    }
    if (fits) return values;
    fields.Keep(Malformed(fields.where(),
                          fmt::format("field \"{}\" is not made of eight hex digits each", key)));
    return {};
  }
};

template <>
Json MeasuredAs<Finding>::Write(const Finding& finding) {
  return {{"id", finding.id},
          {"severity", SeverityName(finding.severity)},
          {"where", finding.where},
          {"message", finding.message},
          {"hint", !finding.hint.empty()},
          {"more", finding.more},
          {"accepted", finding.accepted}};
}

template <>
Finding MeasuredAs<Finding>::Read(JsonFields& fields) {
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

template <>
inline constexpr std::tuple kMembers<std::vector<Finding>> = {ByKey{"findings", std::identity{}}};
template struct MeasuredAs<std::vector<Finding>>;

template <>
inline constexpr std::tuple kMembers<SpreadSums> = {
    ByKey{"groups", &SpreadSums::groups},
    ByKey{"scale", &SpreadSums::scale},
    ByKey{"codes", &SpreadSums::codes},
    ByKey{"scale_squares", &SpreadSums::scale_squares},
    ByKey{"codes_squares", &SpreadSums::codes_squares},
    ByKey{"products", &SpreadSums::products}};

template <>
inline constexpr std::tuple kMembers<WindowCounts> = {
    ByKey{"windows", &WindowCounts::windows},
    ByKey{"shifted_windows", &WindowCounts::shifted_windows},
    ByKey{"noisy_windows", &WindowCounts::noisy_windows},
    ByKey{"column_windows", &WindowCounts::column_windows},
    ByKey{"shifted_columns", &WindowCounts::shifted_columns},
    ByKey{"noisy_columns", &WindowCounts::noisy_columns},
    ByKey{"constant_columns", &WindowCounts::constant_columns},
    ByKey{"repeated_columns", &WindowCounts::repeated_columns},
    ByKey{"codes_hash", &WindowCounts::codes_hash},
    ByKey{"empty_scale_exponents", &WindowCounts::empty_scale_exponents}};

template <>
inline constexpr std::tuple kMembers<ModuleStatistics> = {
    ByKey{"weights", &ModuleStatistics::weights},
    ByKey{"scales", &ModuleStatistics::scales},
    ByKey{"negative_scales", &ModuleStatistics::negative_scales},
    ByKey{"zero_scales", &ModuleStatistics::zero_scales},
    ByKey{"imprecise_scales", &ModuleStatistics::imprecise_scales},
    ByKey{"huge_scales", &ModuleStatistics::huge_scales},
    ByKey{"scales_outside_f16", &ModuleStatistics::scales_outside_f16},
    ByKey{"fine_scales", &ModuleStatistics::fine_scales},
    ByKey{"scales_hash", &ModuleStatistics::scales_hash},
    ByKey{"zero_points", &ModuleStatistics::zero_points},
    ByKey{"low_zero_points", &ModuleStatistics::low_zero_points},
    ByKey{"high_zero_points", &ModuleStatistics::high_zero_points},
    ByKey{"stray_bits", &ModuleStatistics::stray_bits},
    ByKey{"histogram", &ModuleStatistics::histogram},
    ByKey{"scale_exponents", &ModuleStatistics::scale_exponents},
    ByKey{"min_scale", &ModuleStatistics::min_scale},
    ByKey{"max_scale", &ModuleStatistics::max_scale},
    ByKey{"sum", &ModuleStatistics::sum},
    ByKey{"sum_squares", &ModuleStatistics::sum_squares},
    ByKey{"spread", &ModuleStatistics::spread},
    ByKey{"windows", &ModuleStatistics::windows}};

template <>
inline constexpr std::tuple kMembers<ModuleMeasurement> = {
    ByKey{"stopped", &ModuleMeasurement::error}, ByKey{"findings", &ModuleMeasurement::findings},
    ByKey{"statistics", &ModuleMeasurement::statistics},
    ByKey{"energies", &ModuleMeasurement::energies}, ByKey{"sqnr_db", &ModuleMeasurement::sqnr_db}};
template struct MeasuredAs<ModuleMeasurement>;

template <>
inline constexpr std::tuple kMembers<Moments<uint64_t>> = {
    ByKey{"count", &Moments<uint64_t>::count}, ByKey{"sum", &Moments<uint64_t>::sum},
    ByKey{"squares", &Moments<uint64_t>::squares}};

template <>
inline constexpr std::tuple kMembers<PlainStatistics> = {
    ByKey{"bytes", &PlainStatistics::bytes}, ByKey{"zero_bytes", &PlainStatistics::zero_bytes},
    ByKey{"exponents", &PlainStatistics::exponents}};

template <>
inline constexpr std::tuple kMembers<PlainMeasurement> = {
    ByKey{"not_finite", &PlainMeasurement::not_finite},
    ByKey{"first_offset", &PlainMeasurement::first_offset},
    ByKey{"statistics", &PlainMeasurement::statistics}};
template struct MeasuredAs<PlainMeasurement>;

template <>
inline constexpr std::tuple kMembers<DifferentValues> = {ByKey{"count", &DifferentValues::count}};
template struct MeasuredAs<DifferentValues>;

// Of the three modules of an MLP.
template <>
WiringFault MeasuredAs<WiringFault>::Read(JsonFields& fields) {
  return {.module = static_cast<size_t>(fields.Uint("module", 0, 2)),
          .message = fields.Text("message"),
          .exchanged = fields.Bool("exchanged"),
          .needs_peers = fields.Bool("needs_peers")};
}

template <>
inline constexpr std::tuple kMembers<WiringFault> = {
    ByKey{"module", &WiringFault::module}, ByKey{"message", &WiringFault::message},
    ByKey{"exchanged", &WiringFault::exchanged}, ByKey{"needs_peers", &WiringFault::needs_peers}};

using OfThree = std::array<double, 3>;
template <>
inline constexpr std::tuple kMembers<OfThree> = {
    ByKey{"first", [](auto& three) -> decltype(auto) { return (three[0]); }},
    ByKey{"second", [](auto& three) -> decltype(auto) { return (three[1]); }},
    ByKey{"third", [](auto& three) -> decltype(auto) { return (three[2]); }}};

template <>
inline constexpr std::tuple kMembers<MlpWiring> = {ByKey{"without", &MlpWiring::without},
                                                   ByKey{"fault", &MlpWiring::fault}};
template struct MeasuredAs<MlpWiring>;

}  // namespace prepack
