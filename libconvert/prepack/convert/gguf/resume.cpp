#include "prepack/convert/gguf/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <set>
#include <string>
#include <utility>

#include "prepack/base/hash.h"
#include "prepack/base/version.h"
#include "prepack/container/json.h"
#include "prepack/container/json_fields.h"
#include "prepack/convert/gguf/units.h"
#include "prepack/gguf/model.h"
#include "prepack/measure/measurements.h"
#include "prepack/packed/output_hash.h"

namespace prepack::gguf {
namespace {

constexpr std::string_view kForceReplaces = "--force replaces it";

std::string OptionsText(const PlanOptions& options, uint64_t shard_bytes) {
  constexpr std::array kFallbacks = {"refuse", "dequantize", "q8_0"};
  std::string text = fmt::format("--target gguf --fallback {}",
                                 kFallbacks[static_cast<size_t>(options.if_not_held)]);
  if (options.exact) text += " --exact";
  if (!options.tokenizer) text += " --no-tokenizer";
  for (const std::string& name : options.accepted.texts()) text += " --accept " + name;
  return shard_bytes == 0 ? text : text + fmt::format(", files of {} bytes", shard_bytes);
}

std::string LineOf(const Plan& plan, const PlannedTensor& tensor) {
  std::string line =
      fmt::format("{} {} [{}]", tensor.name, InfoOf(tensor.type).name,
                  fmt::join(std::vector(tensor.dims.begin(), tensor.dims.end()), ","));
  for (const RowPiece& piece : tensor.rows) {
    line += fmt::format(" {} {} {}", plan.sources.sources[piece.source].name, piece.first,
                        LoopsJson(piece).dump());
  }
  line += fmt::format(" {} {}\n", tensor.value_offset, fmt::join(tensor.scales, ","));
  return line;
}

Result<Hash128> HashOf(const std::filesystem::path& path) {
  PREPACK_TRY_ASSIGN(const File file, File::OpenForRead(path));
  return StreamedHash().Finish({file, 0, file.size()});
}

Status CheckSource(const std::string& where, const Manifest& manifest, const Checkpoint& checkpoint,
                   const Plan& plan, unsigned threads, Progress& progress) {
  const std::vector<const StoredTensor*> tensors = TensorsWithRows(checkpoint, plan);
  // Of what has been consumed, the headers must do, which are part of the identity.
  const bool is_here = std::ranges::all_of(
      tensors, [&](const StoredTensor* tensor) { return checkpoint.IsHere(*tensor); });
  if (!is_here) return {};
  TensorHashes hashes(checkpoint);
  PREPACK_TRY(HashTensorsAsStage(tensors, threads, progress, hashes));
  const std::string now = FingerprintOfLines(SourceLines(hashes));
  if (now == manifest.source_fingerprint) return {};
  return AnotherSource(where,
                       fmt::format("weights with the fingerprint {}", manifest.source_fingerprint),
                       now)
      .Hint(kForceReplaces);
}

}  // namespace

Result<RunIdentity> IdentityOf(const Checkpoint& checkpoint, const Plan& plan,
                               const PlanOptions& options, uint64_t shard_bytes) {
  Xxh3Hasher hasher;
  hasher.Update(fmt::format("{} {}\n", plan.converter_class, plan.has_tokenizer));
  for (const PlannedTensor& tensor : plan.tensors) hasher.Update(LineOf(plan, tensor));
  for (const std::filesystem::path& path : {plan.metadata, plan.values}) {
    PREPACK_TRY_ASSIGN(const Hash128 hash, HashOf(path));
    hasher.Update(hash.Hex());
  }
  return RunIdentity{.tool = kVersion,
                     .source = SourceIdentity(checkpoint),
                     .options = OptionsText(options, shard_bytes),
                     .plan = hasher.HexDigest()};
}

FinishedUnit NoteOf(const Written& written, std::vector<SourceNote> sources) {
  const Rounded& rounded = written.rounded;
  FinishedUnit finished{.outputs = {written.hash}, .sources = std::move(sources), .details = ""};
  finished.details = Json{{"scales", rounded.scales},
                          {"minima", rounded.minima},
                          {"weights", rounded.weights},
                          {"quantized", rounded.quantized},
                          {"signal", ExactNumber(rounded.signal)},
                          {"noise", ExactNumber(rounded.noise)}}
                         .dump();
  return finished;
}

std::optional<Written> WrittenOf(const FinishedUnit& finished) {
  const Result<Json> json = ParseJsonStrict(finished.details, "journal");
  if (!json.ok() || finished.outputs.size() != 1) return std::nullopt;
  Status status;
  JsonFields fields(*json, "journal", status);
  Written written{.hash = finished.outputs.front(),
                  .rounded = {.scales = fields.Uint("scales"),
                              .minima = fields.Uint("minima"),
                              .weights = fields.Uint("weights"),
                              .quantized = fields.Uint("quantized"),
                              .signal = ReadExactNumber(fields, "signal"),
                              .noise = ReadExactNumber(fields, "noise")}};
  if (!status.ok()) return std::nullopt;
  return written;
}

std::vector<const StoredTensor*> TensorsWithRows(const Checkpoint& checkpoint, const Plan& plan) {
  std::set<const StoredTensor*> tensors;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const auto sources =
        SourcesOf(checkpoint, plan, {.tensor = i, .rows = plan.tensors[i].row_count()});
    tensors.insert(sources.begin(), sources.end());
  }
  return {tensors.begin(), tensors.end()};
}

Result<std::optional<Manifest>> FindFinishedRun(const std::filesystem::path& first,
                                                const RunIdentity& identity,
                                                const Checkpoint& checkpoint, const Plan& plan,
                                                unsigned threads, Progress& progress) {
  PREPACK_TRY_ASSIGN(const std::optional<struct stat> there, LookAt(first));
  if (!there) return std::optional<Manifest>();
  PREPACK_TRY_ASSIGN(const Model model, Model::Open(first));
  PREPACK_TRY_ASSIGN(const std::optional<std::string> hash, ManifestHashOf(model));
  if (!hash) return std::optional<Manifest>();
  PREPACK_TRY_ASSIGN(Manifest manifest, ReadManifest(ManifestOf(first), *hash));
  if (!manifest.run) return std::optional<Manifest>();
  Status status = CheckSameRun(*manifest.run, identity, first.string());
  if (!status.ok()) return std::move(status).Hint(kForceReplaces);
  PREPACK_TRY(CheckSource(first.string(), manifest, checkpoint, plan, threads, progress));
  return std::optional(std::move(manifest));
}

}  // namespace prepack::gguf
