#include "prepack/verify/measured.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/verify/integrity.h"

namespace prepack {
namespace {

Hash128 ReadHash(JsonFields& fields, std::string_view key) {
  const std::string text = fields.Text(key);
  const std::optional<Hash128> hash = ParseHash128(text);
  if (!hash && fields.ok()) {
    fields.Keep(
        Malformed(fields.where(), fmt::format("field \"{}\" is not a hash", key)).Found(text));
  }
  return hash.value_or(Hash128{});
}

Json MeasuredFigure(const Figure& figure) {
  return {{"sqnr_db", ExactNumber(figure.sqnr_db)},
          {"cosine", ExactNumber(figure.cosine)},
          {"max_abs_error", ExactNumber(figure.max_abs_error)},
          {"worst_channel", figure.worst_channel},
          {"worst_channel_sqnr_db", ExactNumber(figure.worst_channel_sqnr_db)}};
}

Figure ReadMeasuredFigure(JsonFields fields) {
  return {.sqnr_db = ReadExactNumber(fields, "sqnr_db"),
          .cosine = ReadExactNumber(fields, "cosine"),
          .max_abs_error = ReadExactNumber(fields, "max_abs_error"),
          .worst_channel = fields.Uint("worst_channel"),
          .worst_channel_sqnr_db = ReadExactNumber(fields, "worst_channel_sqnr_db")};
}

// Without bars, which are set when the figures are judged.
Json MeasuredGemm(const GemmFigures& gemm) {
  Json inputs = Json::array();
  for (const InputFigures& input : gemm.inputs) {
    inputs.push_back({{"input", input.input},
                      {"rows", input.rows},
                      {"kernel", MeasuredFigure(input.kernel)},
                      {"end_to_end", MeasuredFigure(input.end_to_end)}});
  }
  return {{"implementation", gemm.implementation},
          {"activations", gemm.activations},
          {"channels", gemm.channels},
          {"inputs", std::move(inputs)},
          {"second_implementation", gemm.second_implementation},
          {"agreement_db", ExactNumberOrNull(gemm.agreement_db)}};
}

GemmFigures ReadMeasuredGemm(JsonFields fields) {
  GemmFigures gemm{.implementation = fields.Text("implementation"),
                   .activations = fields.Text("activations"),
                   .channels = fields.Uint("channels"),
                   .inputs = {},
                   .second_implementation = fields.Text("second_implementation"),
                   .agreement_db = ReadExactNumberOrNull(fields, "agreement_db")};
  const Json* inputs = fields.Array("inputs");
  for (size_t i = 0; i < inputs->size() && fields.ok(); ++i) {
    JsonFields input = fields.In((*inputs)[i], "inputs", i);
    gemm.inputs.push_back({.input = input.Text("input"),
                           .rows = input.Uint("rows"),
                           .kernel = ReadMeasuredFigure(input.In("kernel")),
                           .end_to_end = ReadMeasuredFigure(input.In("end_to_end")),
                           .kernel_bar_db = 0,
                           .end_to_end_bar_db = {}});
  }
  return gemm;
}

}  // namespace

Json MeasuredAs<Hash128>::Write(const Hash128& hash) {
  return {{"xxh3_128", hash.Hex()}};
}

Hash128 MeasuredAs<Hash128>::Read(JsonFields& fields) {
  return ReadHash(fields, "xxh3_128");
}

Json MeasuredAs<EngineName>::Write(const EngineName& engine) {
  return {{"name", engine.name}, {"reason", engine.reason}};
}

EngineName MeasuredAs<EngineName>::Read(JsonFields& fields) {
  return {.name = fields.Text("name"), .reason = fields.Text("reason")};
}

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

Json MeasuredAs<WeightSize>::Write(const WeightSize& size) {
  return {{"size", ExactNumber(size.value)}};
}

WeightSize MeasuredAs<WeightSize>::Read(JsonFields& fields) {
  return {.value = ReadExactNumber(fields, "size")};
}

Json MeasuredAs<ModuleDifferences>::Write(const ModuleDifferences& differences) {
  return {{"codes", differences.codes},
          {"zero_points", differences.zero_points},
          {"scales", differences.scales},
          {"extra_tiles", differences.extra_tiles},
          {"weight_sums", differences.weight_sums},
          {"parts", differences.parts},
          {"first_n", differences.first_code.first},
          {"first_k", differences.first_code.second},
          {"first_found", differences.first_found},
          {"first_expected", differences.first_expected},
          {"max_scale_difference", ExactNumber(differences.max_scale_difference)},
          {"rounded_scales", differences.rounded_scales}};
}

ModuleDifferences MeasuredAs<ModuleDifferences>::Read(JsonFields& fields) {
  ModuleDifferences differences;
  differences.codes = fields.Uint("codes");
  differences.zero_points = fields.Uint("zero_points");
  differences.scales = fields.Uint("scales");
  differences.extra_tiles = fields.Uint("extra_tiles");
  differences.weight_sums = fields.Uint("weight_sums");
  differences.parts = fields.Texts("parts");
  differences.first_code = {fields.Uint("first_n"), fields.Uint("first_k")};
  differences.first_found = static_cast<unsigned>(fields.Uint("first_found", 0, UINT32_MAX));
  differences.first_expected = static_cast<unsigned>(fields.Uint("first_expected", 0, UINT32_MAX));
  differences.max_scale_difference = ReadExactNumber(fields, "max_scale_difference");
  differences.rounded_scales = fields.Uint("rounded_scales");
  return differences;
}

Json MeasuredAs<PassedTensor>::Write(const PassedTensor& tensor) {
  return {
      {"problem", tensor.problem},
      {"source_xxh3_128", tensor.source_hash ? Json(tensor.source_hash->Hex()) : Json(nullptr)}};
}

PassedTensor MeasuredAs<PassedTensor>::Read(JsonFields& fields) {
  PassedTensor tensor{.problem = fields.Text("problem"), .source_hash = {}};
  if (!fields.IsNull("source_xxh3_128")) tensor.source_hash = ReadHash(fields, "source_xxh3_128");
  return tensor;
}

Json MeasuredAs<DecodedDifferences>::Write(const DecodedDifferences& differences) {
  return {{"weights", differences.weights},
          {"n", differences.n},
          {"k", differences.k},
          {"found", ExactNumber(differences.found)},
          {"expected", ExactNumber(differences.expected)},
          {"other", differences.other}};
}

DecodedDifferences MeasuredAs<DecodedDifferences>::Read(JsonFields& fields) {
  return {.weights = fields.Uint("weights"),
          .n = fields.Uint("n"),
          .k = fields.Uint("k"),
          .found = ReadExactNumber(fields, "found"),
          .expected = ReadExactNumber(fields, "expected"),
          .other = fields.Text("other")};
}

Json MeasuredAs<ModuleProducts>::Write(const ModuleProducts& products) {
  Json json = {{"gemm", MeasuredGemm(products.gemm)},
               {"form", products.form.ok() ? Json(nullptr) : StatusJson(products.form)},
               {"weights", MeasuredAs<DecodedDifferences>::Write(products.weights)},
               {"quality", nullptr},
               {"no_quality", products.no_quality}};
  if (products.quality) {
    json["quality"] = {{"weight_sqnr_db", ExactNumberOrNull(products.quality->weight_sqnr_db)},
                       {"output_sqnr_db", ExactNumberOrNull(products.quality->output_sqnr_db)}};
  }
  return json;
}

ModuleProducts MeasuredAs<ModuleProducts>::Read(JsonFields& fields) {
  ModuleProducts products;
  products.gemm = ReadMeasuredGemm(fields.In("gemm"));
  if (const Json* form = fields.ObjectOrNull("form"); form != nullptr) {
    products.form = ReadStatus(fields.In(*form, "form"));
  }
  JsonFields weights = fields.In("weights");
  products.weights = MeasuredAs<DecodedDifferences>::Read(weights);
  if (const Json* quality = fields.ObjectOrNull("quality"); quality != nullptr) {
    JsonFields figures = fields.In(*quality, "quality");
    products.quality = {.weight_sqnr_db = ReadExactNumberOrNull(figures, "weight_sqnr_db"),
                        .output_sqnr_db = ReadExactNumberOrNull(figures, "output_sqnr_db"),
                        .below_peers_db = {}};
  }
  products.no_quality = fields.Text("no_quality");
  return products;
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
