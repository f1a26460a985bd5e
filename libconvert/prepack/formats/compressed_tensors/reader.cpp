// compressed-tensors checkpoints, as llm-compressor writes them (mirrors compressed-tensors 0.19,
// compressors/ and utils/match.py).
//
// Read: `pack-quantized`, 4 bits, symmetric and asymmetric, one scale per group or per channel.
//
//     MODULE.weight_packed      I32 [N, ⌈K/8⌉]  eight codes per word along K, lowest bits first;
//                                               code = signed value + 8
//     MODULE.weight_scale       BF16, F16 or F32 [N, G]
//     MODULE.weight_zero_point  I32 [⌈N/8⌉, G]  eight zero points per word, down the rows, + 8;
//                               before 0.9.4: I8 [N, G], signed
//     MODULE.weight_shape       I64 [2]         N, K
//
// N = 4, K = 16 with codes 0 … 15 in row 0 begins with the bytes 10 32 54 76 98 ba dc fe.
//
// `mxfp4-pack-quantized` and `nvfp4-pack-quantized` store two FP4 codes in a byte:
//
//     MODULE.weight_packed        U8 [N, K/2]   the even input channel in the low half
//     MODULE.weight_scale         U8 [N, K/32], exponents + 127; of nvfp4 F8_E4M3 [N, K/16]
//     MODULE.weight_global_scale  F32 [1], of nvfp4: divides weight_scale
//
// `mxfp8-quantized` stores weight F8_E4M3 [N, K] beside such exponents.
//
// Every other format and scheme is recognised and refused by name (kUnsupported). The tensors that
// exist decide what a module is, and the configuration says what they mean: `ignore` lists are
// often wrong about names. Where the two contradict each other so that the meaning is open, the
// checkpoint is kMalformed; where the tensors settle it, the contradiction is a Finding.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/json_fields.h"
#include "prepack/formats/compressed_tensors/config.h"
#include "prepack/formats/compressed_tensors/module.h"
#include "prepack/formats/config_keys.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/readers.h"

namespace prepack::ct {

namespace {

// compressed-tensors 0.1 to 0.20 and transformers (CompressedTensorsConfig); the last three are of
// AutoRound's exports.
constexpr std::string_view kCompressedTensorsKeys =
    "config_groups dequantize format global_compression_ratio ignore kv_cache_scheme "
    "quantization_status run_compressed sparsity_config transform_config use_optimized_inference "
    "version provider attention_input_activations fp8_dtype_flavor";

}  // namespace

constinit const FormatKeys kKeys = {.known = {kCompressedTensorsKeys}};

namespace {

// Runtimes look rows up in an embedding of packed integers (vLLM 0.32, compressed_tensors.py:
// get_quant_method; transformers unpacks it), if a group means it. model_free_ptq quantizes
// embeddings for the class Linear, and then they load as unquantized ones.
Status CheckEmbedding(const Module& module, Storage storage, const Group* group) {
  if (group == nullptr) {
    return Unsupported(module.name, "the embedding is quantized, but no config group means it")
        .Found(fmt::format("{} tensors", StorageName(storage)))
        .Expected("a target that is its name, a re: expression, or the class Embedding")
        .Hint("Put the embedding into the ignore list when quantizing")
        .Id(FindingId("embedding-quantized"));
  }
  const bool by_row = group->weights && (group->weights->strategy == Strategy::kChannel ||
                                         group->weights->strategy == Strategy::kGroup);
  if (storage == Storage::kPackQuantized && by_row && group->weights->type == Type::kInt) return {};
  return Unsupported(module.name, "this quantization of an embedding is not supported")
      .Found(fmt::format("{} ({})", StorageName(storage), group->where))
      .Expected("packed integers with a scale for each row or group, as vLLM looks them up")
      .Hint("Put the embedding into the ignore list when quantizing")
      .Id(FindingId("embedding-quantized"));
}

// The group that says what a quantized module's tensors mean. That there is none is an error; that
// the ignore list names the module is not, because the tensors are there.
Result<const Group*> GroupOfQuantized(const Config& config, const Matcher& matcher,
                                      const Module& module, Storage storage,
                                      FindingTally& findings) {
  PREPACK_TRY(CheckModuleName(module.name));
  const ModuleClass module_class = ClassOfModule(module.name);
  PREPACK_TRY_ASSIGN(const Group* found, matcher.GroupOf(module.name, module_class));
  const Group* group = found;
  if (module_class == ModuleClass::kEmbedding) PREPACK_TRY(CheckEmbedding(module, storage, group));
  if (group == nullptr) {
    if (config.groups.empty()) {
      return Malformed(FieldPath(config.where, "config_groups"),
                       "the config has no group, but the checkpoint has quantized tensors")
          .Found(fmt::format("the weight of {}", module.name))
          .Id(FindingId("config-groups-missing"));
    }
    for (const Group& candidate : config.groups) {
      for (const ConfigPattern& target : candidate.targets) {
        if (!target.LooksLikeClass() || target.MatchesClass(ModuleClass::kLinear) ||
            target.MatchesClass(ModuleClass::kEmbedding)) {
          continue;
        }
        return Unsupported(module.name, "no config group names the module")
            .Found(fmt::format("target \"{}\" ({})", Printable(target.text()), candidate.where))
            .Expected("names, re: expressions, or the class Linear")
            .Hint(
                "The target may be the class of the module, which is not in the files; put names "
                "into the targets instead")
            .Id(FindingId("module-without-group"));
      }
    }
    return Malformed(module.name, "the module is quantized, but no config group names it")
        .Expected(fmt::format("a target in {}.config_groups", config.where))
        .Id(FindingId("module-without-group"));
  }
  PREPACK_TRY_ASSIGN(const bool ignored, matcher.Ignored(module.name, module_class));
  if (ignored) {
    findings.Add("module-ignored-but-quantized", module.name,
                 "the ignore list names the module, but it is quantized");
  }
  PREPACK_TRY_ASSIGN(const Group* vllm, matcher.GroupOfVllm(module.name, module_class));
  const Group* other = vllm;
  if (other != group && other->weights != group->weights) {
    findings.Add("module-ambiguous-group", module.name,
                 fmt::format("several config groups name the module: prepack uses \"{}\", as the "
                             "quantizer did; vLLM uses \"{}\"",
                             Printable(group->name), Printable(other->name)));
  }
  return group;
}

// A weight that a group names, that has the shape and the name of a linear layer, and that is
// stored in floating point. Routers, heads and embeddings usually are, and are not worth a word.
Result<bool> IsTargetedFloat(const Matcher& matcher, const Module& module) {
  if (module.weight == nullptr || module.weight->shape.size() != 2 ||
      !module.name.ends_with("_proj") || !CheckModuleName(module.name).ok()) {
    return false;
  }
  const ModuleClass module_class = ClassOfModule(module.name);
  PREPACK_TRY_ASSIGN(const Group* group, matcher.GroupOf(module.name, module_class));
  if (group == nullptr || !group->weights) return false;
  PREPACK_TRY_ASSIGN(const bool ignored, matcher.Ignored(module.name, module_class));
  return !ignored;
}

// The names that an entry of the config may mean: modules, and what they lie in. Ascending, each
// once.
using Names = std::vector<std::string_view>;

Names AllNames(const Checkpoint& checkpoint, std::span<const ModuleTensors> modules) {
  Names names;
  std::string_view before;  // a parent: it is there, and what it lies in
  const auto is_there = [&](std::string_view name) {
    return before.starts_with(name) && (before.size() == name.size() || before[name.size()] == '.');
  };
  for (const ModuleTensors& module : modules) {
    const std::string_view parent = module.name.substr(0, module.name.rfind('.'));
    const auto first = static_cast<std::ptrdiff_t>(names.size());
    for (std::string_view name = parent; !is_there(name);) {
      names.push_back(name);
      if (name.find('.') == std::string_view::npos) break;
      name = name.substr(0, name.rfind('.'));
    }
    std::reverse(names.begin() + first, names.end());
    names.push_back(module.name);
    before = parent;
  }
  // Entries for an output head that is tied to the embedding are right, though it is not stored.
  const Result<std::optional<bool>> tied =
      OptionalBool(checkpoint.config(), "tie_word_embeddings", "config.json");
  if (tied.ok() && tied->value_or(false)) names.emplace_back("lm_head");
  if (!std::ranges::is_sorted(names)) std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// Whether an entry means any of the names.
Result<bool> MatchesAny(const ConfigPattern& entry, const Names& names) {
  if (entry.kind() == ConfigPattern::Kind::kName) {
    return std::ranges::binary_search(names, std::string_view(entry.text()));
  }
  for (const std::string_view name : names) {
    if (!CheckModuleName(name).ok()) continue;
    Result<bool> matches = entry.MatchesName(name);
    if (!matches.ok() || *matches) return matches;
  }
  return false;
}

Status ReportUnmatched(const std::vector<ConfigPattern>& entries, const std::string& where,
                       const Names& names, FindingTally& findings) {
  constexpr size_t kMaxShown = 8;
  std::vector<std::string> unmatched;
  for (const ConfigPattern& entry : entries) {
    // Classes are not in the files: whether one of them matches is not known.
    if (entry.LooksLikeClass()) continue;
    PREPACK_TRY_ASSIGN(const bool matched, MatchesAny(entry, names));
    if (!matched) unmatched.push_back(fmt::format("\"{}\"", Printable(entry.text())));
  }
  if (unmatched.empty()) return {};
  const size_t count = unmatched.size();
  if (count > kMaxShown) {
    unmatched.resize(kMaxShown);
    unmatched.emplace_back("…");
  }
  findings.Add("config-pattern-unmatched", where,
               fmt::format("{} of {} entries match no module of the checkpoint: {}", count,
                           entries.size(), fmt::join(unmatched, ", ")));
  return {};
}

Status AddModule(const Checkpoint& checkpoint, const Module& module, Storage storage,
                 const Config& config, const Matcher& matcher, QuantizedModel& model,
                 FindingTally& findings) {
  PREPACK_TRY_ASSIGN(const Group* group,
                     GroupOfQuantized(config, matcher, module, storage, findings));
  std::optional<Group> without_activations;
  if (ClassOfModule(module.name) == ModuleClass::kEmbedding) {
    without_activations = *group;  // what it takes in are the numbers of tokens
    without_activations->input_activations.reset();
    without_activations->output_activations.reset();
    group = &*without_activations;
    if (!group->weights->symmetric) {
      findings.Add("embedding-zero-points", module.name,
                   "vLLM looks rows up as if there were no zero points");
    }
  }
  auto linears = DescribeModule(checkpoint, module, *group, storage, config, findings);
  if (!linears.ok()) return linears.status();
  for (auto& linear : *linears) model.modules.push_back(std::move(linear));
  return {};
}

// True when the config says that the weights are still in floating point.
bool SaysNotCompressed(const Config& config) {
  return !config.status.empty() && config.status != "compressed";
}

// A weight that was to be quantized, in a model that was not saved compressed: it is the rounded
// one, or was never rounded, and nothing tells which.
Status RefuseUncompressed(const Checkpoint& checkpoint, const Module& module,
                          const Config& config) {
  return Unsupported(checkpoint.Where(*module.weight),
                     "the weight is still in floating point, though a config group names it")
      .Found(fmt::format("weight {}, quantization_status \"{}\"", DTypeName(module.weight->dtype),
                         Printable(config.status)))
      .Expected("\"compressed\", or the module in the ignore list")
      .Hint("Save the model again compressed (save_compressed=True)")
      .Id(FindingId("weight-fake-quantized"));
}

// Why a checkpoint that declares this format has no module that is quantized.
Status NothingQuantized(const Config& config) {
  if (config.groups.empty() && config.has_kv_cache_scheme) {
    return Unsupported(config.where, "only the KV cache is quantized, no weights")
        .Id(FindingId("nothing-quantized"));
  }
  if (SaysNotCompressed(config)) {
    return Unsupported(config.where, "the weights are still in floating point")
        .Found(fmt::format("quantization_status \"{}\"", Printable(config.status)))
        .Expected("\"compressed\"")
        .Hint("Save the model again compressed (save_compressed=True)")
        .Id(FindingId("nothing-quantized"));
  }
  return Malformed(config.where, "the config declares quantized weights, but no tensor is one")
      .Expected("tensors named MODULE.weight_packed, or MODULE.weight with MODULE.weight_scale")
      .Hint("The config may belong to another checkpoint, or shards are missing")
      .Id(FindingId("nothing-quantized"));
}

}  // namespace

Status Read(const ReadContext& context, QuantizedModel& model) {
  const Checkpoint& checkpoint = context.checkpoint;
  FindingTally& findings = context.findings;
  PREPACK_TRY_ASSIGN(const Config config, ParseConfigs(context.configs));
  const Matcher matcher(config);
  PlainModules plain;
  std::vector<Status> uncompressed;
  for (const ModuleTensors& group : context.modules) {
    const Module module = SortTensors(group);
    const Result<Storage> storage = ClassifyModule(checkpoint, module);
    if (!storage.ok()) {
      model.errors.push_back(storage.status());
      continue;
    }
    if (*storage == Storage::kPlain) {
      PREPACK_TRY_ASSIGN(const bool targeted, IsTargetedFloat(matcher, module));
      if (targeted && SaysNotCompressed(config)) {
        uncompressed.push_back(RefuseUncompressed(checkpoint, module, config));
      } else if (targeted) {
        plain.Add(module.name, "a config group names the module, but it is not quantized");
      }
      continue;
    }
    Status status = AddModule(checkpoint, module, *storage, config, matcher, model, findings);
    if (!status.ok()) model.errors.push_back(std::move(status));
  }
  if (model.modules.empty() && model.errors.empty()) return NothingQuantized(config);
  plain.Report(model, findings);
  model.errors.insert(model.errors.end(), uncompressed.begin(), uncompressed.end());
  if (SaysNotCompressed(config) && !model.modules.empty()) {
    findings.Add("config-status-wrong", FieldPath(config.where, "quantization_status"),
                 fmt::format("the status is \"{}\", but {} modules are stored quantized",
                             Printable(config.status), model.modules.size()));
  }
  if (config.rotated) {
    findings.Add("rotation-folded", FieldPath(config.where, "transform_config"),
                 "all rotations are of weights, and the stored weights contain them");
  }
  const Names names = AllNames(checkpoint, context.modules);
  PREPACK_TRY(ReportUnmatched(config.ignore, FieldPath(config.where, "ignore"), names, findings));
  for (const Group& group : config.groups) {
    PREPACK_TRY(ReportUnmatched(group.targets, FieldPath(group.where, "targets"), names, findings));
  }
  return {};
}

}  // namespace prepack::ct
