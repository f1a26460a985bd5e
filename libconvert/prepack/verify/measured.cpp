#include "prepack/verify/measured.h"

#include <fmt/format.h>

#include <functional>
#include <tuple>
#include <utility>

#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/measure/members.h"
#include "prepack/verify/integrity.h"

namespace prepack {
template <>
inline constexpr std::tuple kMembers<Hash128> = {ByKey{"xxh3_128", std::identity{}}};
template struct MeasuredAs<Hash128>;

template <>
inline constexpr std::tuple kMembers<EngineName> = {ByKey{"name", &EngineName::name},
                                                    ByKey{"reason", &EngineName::reason}};

template <>
inline constexpr std::tuple kMembers<WeightSize> = {ByKey{"size", &WeightSize::value}};
template struct MeasuredAs<WeightSize>;

using OutputAndInput = std::pair<uint64_t, uint64_t>;
template <>
inline constexpr std::tuple kMembers<OutputAndInput> = {ByKey{"n", &OutputAndInput::first},
                                                        ByKey{"k", &OutputAndInput::second}};

template <>
inline constexpr std::tuple kMembers<ModuleDifferences> = {
    ByKey{"codes", &ModuleDifferences::codes},
    ByKey{"zero_points", &ModuleDifferences::zero_points},
    ByKey{"scales", &ModuleDifferences::scales},
    ByKey{"extra_tiles", &ModuleDifferences::extra_tiles},
    ByKey{"weight_sums", &ModuleDifferences::weight_sums},
    ByKey{"parts", &ModuleDifferences::parts},
    ByKey{"first_code", &ModuleDifferences::first_code},
    ByKey{"first_found", &ModuleDifferences::first_found},
    ByKey{"first_expected", &ModuleDifferences::first_expected},
    ByKey{"max_scale_difference", &ModuleDifferences::max_scale_difference},
    ByKey{"rounded_scales", &ModuleDifferences::rounded_scales}};
template struct MeasuredAs<ModuleDifferences>;

template <>
inline constexpr std::tuple kMembers<PassedTensor> = {
    ByKey{"problem", &PassedTensor::problem}, ByKey{"source_xxh3_128", &PassedTensor::source_hash}};
template struct MeasuredAs<PassedTensor>;

template <>
inline constexpr std::tuple kMembers<DecodedDifferences> = {
    ByKey{"weights", &DecodedDifferences::weights},
    ByKey{"n", &DecodedDifferences::n},
    ByKey{"k", &DecodedDifferences::k},
    ByKey{"found", &DecodedDifferences::found},
    ByKey{"expected", &DecodedDifferences::expected},
    ByKey{"other", &DecodedDifferences::other}};
template struct MeasuredAs<DecodedDifferences>;

template <>
inline constexpr std::tuple kMembers<Figure> = {
    ByKey{"sqnr_db", &Figure::sqnr_db}, ByKey{"cosine", &Figure::cosine},
    ByKey{"max_abs_error", &Figure::max_abs_error}, ByKey{"worst_channel", &Figure::worst_channel},
    ByKey{"worst_channel_sqnr_db", &Figure::worst_channel_sqnr_db}};

// Without bars, which are set when the figures are judged.
template <>
inline constexpr std::tuple kMembers<InputFigures> = {
    ByKey{"input", &InputFigures::input}, ByKey{"rows", &InputFigures::rows},
    ByKey{"kernel", &InputFigures::kernel}, ByKey{"end_to_end", &InputFigures::end_to_end}};

template <>
inline constexpr std::tuple kMembers<GemmFigures> = {
    ByKey{"implementation", &GemmFigures::implementation},
    ByKey{"activations", &GemmFigures::activations},
    ByKey{"channels", &GemmFigures::channels},
    ByKey{"inputs", &GemmFigures::inputs},
    ByKey{"second_implementation", &GemmFigures::second_implementation},
    ByKey{"agreement_db", &GemmFigures::agreement_db}};

template <>
inline constexpr std::tuple kMembers<QualityFigures> = {
    ByKey{"weight_sqnr_db", &QualityFigures::weight_sqnr_db},
    ByKey{"output_sqnr_db", &QualityFigures::output_sqnr_db}};

template <>
inline constexpr std::tuple kMembers<ModuleProducts> = {
    ByKey{"gemm", &ModuleProducts::gemm}, ByKey{"form", &ModuleProducts::form},
    ByKey{"weights", &ModuleProducts::weights}, ByKey{"quality", &ModuleProducts::quality},
    ByKey{"no_quality", &ModuleProducts::no_quality}};
template struct MeasuredAs<ModuleProducts>;

namespace {

std::string TextOf(const EngineName& engine) {
  if (engine.reason.empty()) return engine.name;
  return engine.name.empty() ? engine.reason : fmt::format("{}: {}", engine.name, engine.reason);
}

}  // namespace

Result<EngineName> EngineTogether(Measurements& measured, const EngineName& own) {
  if (measured.whole()) return own;
  const auto thing_of = [](const std::string& part) {
    return MeasuredThing{.kind = "engine", .name = part, .unit = part};
  };
  Part part = measured.part();
  if (measured.is_part()) {
    measured.Keep(thing_of(part.Text()), MeasuredAs<EngineName>::Write(own));
    return own;
  }
  std::optional<EngineName> all;
  for (part.index = 1; part.index <= part.count; ++part.index) {
    const std::string text = part.Text();
    PREPACK_TRY_ASSIGN(EngineName engine, measured.Taken<EngineName>(thing_of(text)));
    // Why there is no oneDNN may be said otherwise by every machine.
    if (all && engine.name != all->name) {
      return Usage(fmt::format("part {}", text), "it was multiplied by another engine than part 1")
          .Found(TextOf(engine))
          .Expected(TextOf(*all))
          .Hint("Verify all parts with the same oneDNN, or all with --engine reference");
    }
    if (!all) all = std::move(engine);
  }
  return *std::move(all);
}

std::string UnitOfRange(std::string_view file, uint64_t offset, uint64_t bytes) {
  return fmt::format("{}@{}+{}", file, offset, bytes);
}

void CutIntoParts(const PackedFolder& folder, Measurements& measured) {
  if (measured.whole()) return;
  const Manifest& manifest = folder.manifest();
  std::vector<std::pair<std::string, uint64_t>> units;
  for (const auto& [name, module] : manifest.modules) {
    uint64_t bytes = 0;
    for (const auto& [part, tensor] : module.parts) bytes += tensor.bytes();
    units.emplace_back(UnitOfModule(name), bytes);
  }
  for (const TensorRecord& tensor : manifest.tensors) {
    units.emplace_back(UnitOfTensor(tensor.tensor), tensor.bytes());
  }
  for (const auto& [name, file] : manifest.files) {
    if (!IsShard(name)) units.emplace_back(UnitOfFile(name), file.bytes);
  }
  measured.Cut(units);
  const auto assign = [&](const TensorRecord& tensor, const std::string& unit) {
    measured.Assign(UnitOfRange(tensor.file, tensor.offset, tensor.bytes()), unit);
  };
  for (const auto& [name, module] : manifest.modules) {
    for (const auto& [part, tensor] : module.parts) assign(tensor, UnitOfModule(name));
  }
  for (const TensorRecord& tensor : manifest.tensors) assign(tensor, UnitOfTensor(tensor.tensor));
}

Status AsMalformed(const Status& status) {
  Status malformed(ErrorKind::kMalformed, status.where(), status.what());
  malformed.Found(status.found()).Expected(status.expected()).Hint(status.hint());
  return malformed;
}

Result<std::string> HashFileTogether(const File& file, const std::string& name,
                                     Measurements& measured, Progress& progress) {
  const std::string unit = UnitOfFile(name);
  const auto hash_all = [&]() {
    PageBuffer buffer;
    return HashRange({file, 0, file.size()}, buffer, progress);
  };
  PREPACK_TRY_ASSIGN(const Hash128 hash,
                     measured.Of<Hash128>({.kind = "file", .name = name, .unit = unit}, hash_all));
  return hash.Hex();
}

Status HashSourceTogether(std::vector<const StoredTensor*> tensors, Measurements& measured,
                          unsigned threads, Progress& progress, TensorHashes& hashes) {
  const auto hash_of = [&](const StoredTensor& tensor, PageBuffer& buffer) {
    const std::string unit = UnitOfTensor(tensor.name);
    return measured.Of<Hash128>({.kind = "source", .name = tensor.name, .unit = unit}, [&] {
      return HashRange(RangeOf(hashes.checkpoint(), tensor), buffer, progress);
    });
  };
  return HashTensors(std::move(tensors), threads, hash_of, hashes);
}

}  // namespace prepack
