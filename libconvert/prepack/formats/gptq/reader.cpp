// The format of GPTQModel, AutoGPTQ, optimum, and of AutoRound's export to auto_gptq. The tensors
// of a module are drawn in formats/gptq/linear.h, its zero points in formats/gptq/zeros.h, the
// config is described in formats/gptq/config.h. Which modules are quantized is told by the tensors;
// where the config says otherwise, that is a finding.
//
// Not read: Marlin, BitBLAS, QQQ and EXL3 weights (tiled for GPUs), words of other than 32 bits,
// rotated weights, adapters, embeddings.

#include "prepack/formats/gptq/module.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/json_fields.h"
#include "prepack/formats/config_keys.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/gptq/config.h"
#include "prepack/formats/gptq/linear.h"
#include "prepack/formats/gptq/zeros.h"
#include "prepack/formats/module_match.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/formats/readers.h"
#include "prepack/model/module_name.h"

namespace prepack::gptq {

namespace {

// AutoGPTQ, optimum and transformers (GPTQConfig).
constexpr std::string_view kGptqKeys =
    "backend cache_block_outputs dequantize disable_exllama exllama_config max_input_length "
    "model_file_base_name model_name_or_path model_seqlen module_name_preceding_first_block "
    "modules_in_block_to_quantize modules_to_not_convert pad_token_id quantizer tokenizer "
    "use_cuda_fp16 use_exllama version";

}  // namespace

constinit const FormatKeys kKeys = {.known = {kGptqKeys, kGptqModelKeys, kAutoRoundKeys}};

namespace {

// What lies beside qweight and does not belong to it.
Status CheckOtherTensors(const Checkpoint& checkpoint, const ModuleTensors& module,
                         FindingTally& findings) {
  static constexpr std::array<std::string_view, 5> kKnown = {"qweight", "qzeros", "scales", "g_idx",
                                                             "bias"};
  for (const auto& [suffix, tensor] : module.tensors) {
    if (suffix == "weight") {
      return Malformed(module.name, "the module is stored twice, quantized and unquantized")
          .Found(fmt::format("{} and {}", checkpoint.Where(*module.Find("qweight")),
                             checkpoint.Where(*tensor)))
          .Hint(
              "Remove the one that does not belong to this checkpoint; the folder may contain a "
              "stale shard")
          .Id(FindingId("weight-twice"));
    }
    if (suffix == "lora_A" || suffix == "lora_B") {
      return Unsupported(checkpoint.Where(*tensor), "low-rank adapters are not supported")
          .Hint(
              "Without the adapter the module computes something else; merge it before quantizing, "
              "or remove it if that is what you want")
          .Id(FindingId("adapter-unsupported"));
    }
    if (std::ranges::find(kKnown, suffix) == kKnown.end()) {
      findings.Add("tensor-unknown", tensor->name,
                   "unknown tensor of a quantized module; prepack copies it");
    }
  }
  return {};
}

// The constant that a symmetric module stores, from its first zero point.
Result<uint32_t> FindSymmetricField(const Checkpoint& checkpoint, const ModuleTensors& module,
                                    const Shape& shape, const Settings& settings,
                                    FindingTally& findings) {
  std::array<uint32_t, 8> buffer{};
  const uint32_t bits = shape.packing.bits;
  const auto words = std::span(buffer).first(
      std::min<uint64_t>(UnitOf(shape.packing).stored_words, shape.zero_words));
  PREPACK_TRY(checkpoint.Read(*shape.qzeros, 0, std::as_writable_bytes(words)));
  const uint32_t field = PackedCode(shape.packing, words, 0);
  if (field == SymmetricField(bits, settings.zeros)) return field;
  const bool minus_one = settings.zeros == Zeros::kMinusOne;
  const Zeros other = minus_one ? Zeros::kStored : Zeros::kMinusOne;
  if (field == SymmetricField(bits, other)) {
    findings.Add("gptq-zeros-other-version", module.name,
                 fmt::format("declared {}, but {} is stored, as in {}; this does not matter, "
                             "because the module is symmetric",
                             minus_one ? "z - 1 (v1)" : "z (v2)", field,
                             minus_one ? "z (v2)" : "z - 1 (v1)"));
    return field;
  }
  return Malformed(checkpoint.Where(*shape.qzeros),
                   "the module claims to be symmetric, but its zero points are not in the middle")
      .Found(fmt::format("{} at channel 0, group 0", field))
      .Expected(fmt::format("{} or {}", SymmetricField(bits, Zeros::kMinusOne),
                            SymmetricField(bits, Zeros::kStored)))
      .Hint("Set sym to false if it is not symmetric, or export it again")
      .Id(FindingId("zero-point-not-symmetric"));
}

}  // namespace

Result<Module> DescribeModule(const Checkpoint& checkpoint, const ModuleTensors& module,
                              const Settings& settings, FindingTally& findings) {
  if (ClassOfModule(module.name) == ModuleClass::kEmbedding) {
    return Unsupported(module.name, "quantized embeddings are not supported")
        .Hint("Leave the embedding out when quantizing")
        .Id(FindingId("embedding-quantized"));
  }
  PREPACK_TRY(CheckOtherTensors(checkpoint, module, findings));
  PREPACK_TRY_ASSIGN(const Shape shape, CheckShape(checkpoint, module, settings));
  if (shape.packing.bits != settings.bits) {
    findings.Add(
        "module-scheme-mismatch", module.name,
        fmt::format("the config says {} bits, but the tensors hold {}; prepack trusts the tensors",
                    settings.bits, shape.packing.bits));
  }
  const uint64_t needed = ZeroWordsFor(shape.packing, shape.n);
  if (shape.zero_words > needed) {
    findings.Add("zero-point-padded", module.name,
                 fmt::format("qzeros has {} words per group for N = {}; prepack ignores {}",
                             shape.zero_words, shape.n, shape.zero_words - needed));
  }
  PREPACK_TRY_ASSIGN(GroupOrder order, ReadGroupOrder(checkpoint, shape.g_idx, shape.k,
                                                      shape.group_size, GroupDialect::kGptq));
  ReportOrder(order, module, shape, settings.act_order, findings);

  uint32_t symmetric_field = 0;
  if (settings.symmetric) {
    PREPACK_TRY_ASSIGN(const uint32_t field,
                       FindSymmetricField(checkpoint, module, shape, settings, findings));
    symmetric_field = field;
  }
  const bool reordered = order.kind == GroupOrder::Kind::kScattered;
  return Module{.linear = std::make_unique<Linear>(checkpoint, module.name, shape, settings,
                                                   reordered, symmetric_field),
                .shape = shape,
                .order = std::move(order)};
}

namespace {
bool IsPlainMatrix(const ModuleTensors& module) {
  const StoredTensor* weight = module.Find("weight");
  return weight != nullptr && weight->shape.size() == 2;
}

// kUnsupported for tensors that only the GPU formats of GPTQModel store; the whole checkpoint is of
// that format then, though quant_method is gptq.
Status RefuseGpuFormat(const Checkpoint& checkpoint, const ModuleTensors& module) {
  const auto refuse = [&](std::string_view suffix, std::string_view name) {
    return Unsupported(checkpoint.Where(*module.Find(suffix)),
                       fmt::format("{} weights are not supported", name))
        .Found(fmt::format("tensor {}", suffix))
        .Expected("qweight, qzeros and scales")
        .Hint(
            "They are tiled for GPUs and cannot be repacked; use the checkpoint that they were "
            "made from, or another GPTQ, AWQ, FP8 or compressed-tensors release of the model")
        .Id(FindingId("gptq-format"));
  };
  if (module.Find("B") != nullptr && module.Find("s_channel") != nullptr) return refuse("B", "QQQ");
  if (module.Find("B") != nullptr && module.Find("s") != nullptr) return refuse("B", "Marlin");
  if (module.Find("trellis") != nullptr) return refuse("trellis", "EXL3");
  return {};
}

// A module that has parts of a quantized weight, but not the codes.
Status CheckOrphans(const Checkpoint& checkpoint, const ModuleTensors& module) {
  for (const std::string_view suffix : {"qzeros", "g_idx", "scales"}) {
    const StoredTensor* orphan = module.Find(suffix);
    if (orphan == nullptr || (suffix == "scales" && module.Find("weight") != nullptr)) continue;
    return Malformed(module.name, "the tensor qweight of a quantized module is missing")
        .Found(checkpoint.Where(*orphan))
        .Hint("A shard is missing, or the index is wrong")
        .Id(FindingId("tensor-missing"));
  }
  return {};
}

constexpr std::string_view kZerosHint =
    "If the weights are right, set checkpoint_format to the other of \"gptq\" and \"gptq_v2\" in "
    "every copy of the quantization config";

constexpr std::string_view kIncluded = "the config includes the module, but it is not quantized";

// What the definitions of nearly all architectures list.
bool IsUsual(std::string_view module) {
  static constexpr std::array<std::string_view, 9> kUsual = {
      "q_proj",    "k_proj",  "v_proj",       "qkv_proj", "o_proj",
      "gate_proj", "up_proj", "gate_up_proj", "down_proj"};
  return std::ranges::find(kUsual, LastPart(module)) != kUsual.end();
}

class Reader {
 public:
  Reader(const Checkpoint& checkpoint, const Config& config, FindingTally& findings)
      : checkpoint_(checkpoint), config_(config), findings_(findings) {}

  Result<std::unique_ptr<QuantizedLinear>> Describe(const ModuleTensors& module) {
    PREPACK_TRY_ASSIGN(const Rule* rule, config_.RuleOf(module.name));
    const Settings settings = config_.SettingsUnder(rule);
    PREPACK_TRY(ReportExcluded(module, rule));
    PREPACK_TRY_ASSIGN(Module described, DescribeModule(checkpoint_, module, settings, findings_));
    PREPACK_TRY_ASSIGN(const ZeroSample sample,
                       SampleZeros(checkpoint_, described.shape, described.order, settings));
    PREPACK_TRY(CheckZeros(sample, settings.zeros, module.name, kZerosHint, findings_));
    if (settings.zeros == config_.settings.zeros) evidence_ += sample;
    return std::move(described.linear);
  }

  // A layer that the config wants quantized and that is not.
  Status ReportPlain(const ModuleTensors& module) {
    if (!IsPlainMatrix(module) || !CheckModuleName(module.name).ok()) return {};
    if (IsOutputHead(module.name)) {
      if (config_.lm_head) {
        findings_.Add("module-targeted-but-plain", module.name,
                      "lm_head is true, but the output head is not quantized");
      }
      return {};
    }
    if (!module.name.ends_with("_proj") || !InBlockModules(module.name)) return {};
    PREPACK_TRY_ASSIGN(const Rule* rule, config_.RuleOf(module.name));
    if (rule != nullptr) {
      Status status = config_.ReportOrder(module.name, *rule, findings_);
      if (!status.ok() || rule->exclude) return status;
    }
    if (IsUsual(module.name)) {
      plain_.Add(module.name, kIncluded);
    } else {
      unusual_.push_back(module.name);
    }
    return {};
  }

  // GPTQ quantizes what the quantizer's definition of the architecture lists, which the config does
  // not say: a projection of a new kind may be in no layer's list.
  void ReportTargeted(const QuantizedModel& model) {
    if (!unusual_.empty()) {
      std::set<std::string> roles;
      for (const auto& linear : model.modules) roles.insert(RoleOf(linear->module()));
      for (const std::string_view module : unusual_) {
        if (roles.contains(RoleOf(module))) plain_.Add(module, kIncluded);
      }
    }
    plain_.Report(model, findings_);
  }

  Status ReportUnmatched(std::span<const ModuleTensors> modules) {
    std::vector<std::string> unmatched;
    for (const Rule& rule : config_.rules) {
      PREPACK_TRY_ASSIGN(const bool matched, MatchesAny(rule, modules));
      if (!matched) unmatched.push_back(fmt::format("\"{}\"", Printable(rule.text)));
    }
    if (unmatched.empty()) return {};
    const size_t count = unmatched.size();
    constexpr size_t kMaxShown = 8;
    if (count > kMaxShown) {
      unmatched.resize(kMaxShown);
      unmatched.emplace_back("…");
    }
    findings_.Add("config-pattern-unmatched", FieldPath(config_.settings.where, "dynamic"),
                  fmt::format("{} of {} entries match no module of the checkpoint: {}", count,
                              config_.rules.size(), fmt::join(unmatched, ", ")));
    return {};
  }

  // All modules together, where each by itself is too small.
  Status CheckEvidence() {
    return CheckZeros(evidence_, config_.settings.zeros,
                      FieldPath(config_.settings.where, "checkpoint_format"), kZerosHint,
                      findings_);
  }

 private:
  static Result<bool> MatchesAny(const Rule& rule, std::span<const ModuleTensors> modules) {
    for (const ModuleTensors& module : modules) {
      const bool is_layer = module.Find("qweight") != nullptr || IsPlainMatrix(module);
      if (!is_layer || !CheckModuleName(module.name).ok()) continue;
      Result<bool> matches = rule.regex.MatchesStart(module.name);
      if (!matches.ok() || *matches) return matches;
    }
    return false;
  }

  bool InBlockModules(std::string_view module) const {
    const auto& names = config_.block_modules;
    return names.empty() || std::ranges::any_of(names, [&](const std::string& name) {
             return module.find(name) != std::string_view::npos;
           });
  }

  // A layer that the config wants plain and that is quantized.
  Status ReportExcluded(const ModuleTensors& module, const Rule* rule) {
    if (rule != nullptr) {
      PREPACK_TRY(config_.ReportOrder(module.name, *rule, findings_));
    }
    if (rule != nullptr && rule->exclude) {
      findings_.Add("module-ignored-but-quantized", module.name,
                    fmt::format("dynamic excludes it with \"{}\", but it is quantized",
                                Printable(rule->text)));
    } else if (IsOutputHead(module.name) && !config_.lm_head) {
      findings_.Add("module-ignored-but-quantized", module.name,
                    "lm_head is not true, but the output head is quantized");
    } else if (!IsOutputHead(module.name) && !InBlockModules(module.name)) {
      findings_.Add("module-ignored-but-quantized", module.name,
                    "modules_in_block_to_quantize does not name it, but it is quantized");
    }
    return {};
  }

  const Checkpoint& checkpoint_;
  const Config& config_;
  FindingTally& findings_;
  ZeroSample evidence_;
  PlainModules plain_;
  std::vector<std::string_view> unusual_;  // plain projections that few architectures have
};

}  // namespace

Status Read(const ReadContext& context, QuantizedModel& model) {
  PREPACK_TRY_ASSIGN(const Config config, ParseConfigs(context.configs, context.findings));
  Reader reader(context.checkpoint, config, context.findings);
  for (const ModuleTensors& module : context.modules) {
    PREPACK_TRY(RefuseGpuFormat(context.checkpoint, module));
    if (module.Find("qweight") != nullptr) {
      model.Add(reader.Describe(module));
      continue;
    }
    Status orphans = CheckOrphans(context.checkpoint, module);
    if (orphans.ok()) {
      PREPACK_TRY(reader.ReportPlain(module));
    }
    model.AddError(std::move(orphans));
  }
  PREPACK_TRY(RequireModules(model, config.settings.where, "tensors named MODULE.qweight"));
  PREPACK_TRY(reader.CheckEvidence());
  PREPACK_TRY(reader.ReportUnmatched(context.modules));
  reader.ReportTargeted(model);
  return {};
}

}  // namespace prepack::gptq
