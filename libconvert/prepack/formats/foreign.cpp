#include "prepack/formats/foreign.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/container/json_fields.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/gptq/config.h"

namespace prepack {

namespace {

// What to do about weights that would have to be dequantized first. Quantizing again what was
// quantized loses twice, and few people have the memory for it.
constexpr std::string_view kOtherRelease =
    "Download a GPTQ, AWQ, FP8 or compressed-tensors release of the same model instead; most "
    "publishers offer one. If there is none, quantize the original model with llm-compressor, "
    "GPTQModel or AutoRound";

constexpr std::string_view kModelOpt = "hf_quant_config.json";

// Names that only tensors of quantized modules end with.
constexpr std::array<std::string_view, 6> kQuantized = {
    ".qweight", ".qzeros", ".weight_packed", ".weight_scale", ".weight_scale_inv", "_scale_inv"};

const StoredTensor* FindQuantized(const Checkpoint& checkpoint) {
  const auto found = std::ranges::find_if(checkpoint.tensors(), [](const StoredTensor& tensor) {
    return std::ranges::any_of(
        kQuantized, [&](std::string_view suffix) { return tensor.name.ends_with(suffix); });
  });
  return found == checkpoint.tensors().end() ? nullptr : &*found;
}

}  // namespace

bool IsMlx(const Checkpoint& checkpoint) {
  const Json* quantization = JsonMember(checkpoint.config(), "quantization");
  return quantization != nullptr && JsonMember(*quantization, "bits") != nullptr;
}

Status RefuseMlx(std::string_view where) {
  return Unsupported(where, "arrays of Apple's MLX are not supported")
      .Hint(kOtherRelease)
      .Id(FindingId("method-unsupported"));
}

Status RefuseUndeclared(const Checkpoint& checkpoint) {
  PREPACK_TRY(gptq::RefuseTgiConfig(checkpoint));
  if (std::ranges::find(checkpoint.side_files(), kModelOpt) != checkpoint.side_files().end()) {
    return Malformed(std::string(kModelOpt), "the file does not say how the model is quantized")
        .Expected("an object \"quantization\" with \"quant_algo\"")
        .Hint("Copy the file from the folder that ModelOpt wrote")
        .Id(FindingId("config-missing"));
  }
  if (IsMlx(checkpoint)) return RefuseMlx("config.json: quantization");
  if (const StoredTensor* tensor = FindQuantized(checkpoint)) {
    return Unsupported("config.json",
                       "the checkpoint is quantized, but its quantization_config is missing")
        .Found(fmt::format("tensor {}", Printable(tensor->name)))
        .Hint(
            "Copy config.json from the folder that the quantizer wrote; saving the config of a "
            "loaded model again may have lost the declaration")
        .Id(FindingId("config-missing"));
  }
  return Unsupported("config.json", "the checkpoint is not quantized: no quantization_config")
      .Hint(
          "Quantize it first, or give the folder that holds the config.json of the quantized "
          "model")
      .Id(FindingId("config-missing"));
}

namespace {

struct ForeignMethod {
  std::string_view method;  // quant_method, with - for _
  std::string_view name;    // for people
  std::string_view hint;
};

constexpr std::string_view kGpuTiles =
    "The weights are tiled for GPUs; use the checkpoint that they were converted from, or another "
    "GPTQ, AWQ, FP8 or compressed-tensors release of the model";

constexpr auto kForeignMethods = std::to_array<ForeignMethod>({
    {"marlin", "Marlin", kGpuTiles},
    {"gptq-marlin", "Marlin", kGpuTiles},
    {"gptq-marlin-24", "sparse Marlin", kGpuTiles},
    {"bitblas", "BitBLAS", kGpuTiles},
    {"gptq-bitblas", "BitBLAS", kGpuTiles},
    {"qqq", "QQQ", kGpuTiles},
    {"bitsandbytes", "bitsandbytes", kOtherRelease},
    {"hqq", "HQQ", kOtherRelease},
    {"exl2", "EXL2", kOtherRelease},
    {"exl3", "EXL3", kOtherRelease},
    {"gguf", "GGUF",
     "llama.cpp reads such blocks from .gguf files only; download the GPTQ, AWQ, FP8 or "
     "compressed-tensors release of the model"},
    {"aqlm", "AQLM", kOtherRelease},
    {"quip", "QuIP#", kOtherRelease},
    {"vptq", "VPTQ", kOtherRelease},
    {"spqr", "SpQR", kOtherRelease},
    {"higgs", "HIGGS", kOtherRelease},
    {"eetq", "EETQ", kOtherRelease},
    {"torchao", "torchao", kOtherRelease},
    {"quanto", "Quanto", kOtherRelease},
});

}  // namespace

Status RefuseMethod(std::string_view method, std::string_view where, std::string_view known) {
  const auto refuse = [&](std::string_view name, std::string_view hint) {
    return Unsupported(where, fmt::format("{} checkpoints are not supported", name))
        .Found(fmt::format("quant_method \"{}\"", Printable(method)))
        .Expected(known)
        .Hint(hint)
        .Id(FindingId("method-unsupported"));
  };
  for (const ForeignMethod& foreign : kForeignMethods) {
    if (foreign.method == method) return refuse(foreign.name, foreign.hint);
  }
  return refuse(Printable(method), kOtherRelease);
}

namespace {

// Tensors that only quantized modules have: their codes, and what belongs to codes.
constexpr std::array<std::string_view, 2> kCodes = {"qweight", "weight_packed"};
constexpr std::array<std::string_view, 4> kForeignSuffixes = {
    "qzeros", "weight_scale", "weight_scale_inv", "weight_zero_point"};

// Types of which a matrix is quantized weights, or nothing that a model has.
bool IsSmallCode(DType dtype) {
  switch (dtype) {
    case DType::kI8:
    case DType::kU8:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kF8E4M3Fnuz:
    case DType::kF8E5M2Fnuz:
    case DType::kF6E2M3:
    case DType::kF6E3M2:
    case DType::kF4:
      return true;
    default:
      return false;
  }
}

bool IsCodeMatrix(const StoredTensor& tensor) {
  return tensor.shape.size() >= 2 && IsSmallCode(tensor.dtype);
}

// The scale of codes by the name of either: "X" has "X_scale", and "X_blocks" has "X_scales".
const StoredTensor* ScaleOf(const ModuleTensors& module, std::string_view codes) {
  constexpr std::string_view kBlocks = "_blocks";
  if (codes.ends_with(kBlocks)) {
    const std::string_view stem = codes.substr(0, codes.size() - kBlocks.size());
    return module.Find(fmt::format("{}_scales", stem));
  }
  for (const std::string_view suffix : {"_scale_inv", "_scale", "_scales", "_weight_scale"}) {
    if (const StoredTensor* scale = module.Find(fmt::format("{}{}", codes, suffix))) return scale;
  }
  return codes == "weight" ? module.Find("scale") : nullptr;
}

// Is it the scale of codes that lie beside it? Scales may be bytes, too.
bool IsScaleOfOthers(const ModuleTensors& module, const StoredTensor& tensor) {
  return std::ranges::any_of(module.tensors, [&](const auto& other) {
    return IsCodeMatrix(*other.second) && ScaleOf(module, other.first) == &tensor;
  });
}

class Foreigners {
 public:
  Foreigners(const Checkpoint& checkpoint, QuantizedModel& model)
      : checkpoint_(checkpoint), model_(model), used_(TensorsInModules(checkpoint, model)) {}

  void Report(const ModuleTensors& module) {
    if (IsLeftAsFloat(module)) {
      findings_.Add(
          "scale-leftover", module.name,
          "the weight is in floating point, so weight_scale_inv is not used; transformers stores "
          "one even for layers that it leaves as they are, and multiplies the weight by it if it "
          "dequantizes the model while loading it, as it does without a GPU");
      return;
    }
    const StoredTensor* foreign = Evidence(module);
    const bool any_codes = std::ranges::any_of(module.tensors, [&](const auto& named) {
      return IsCodeMatrix(*named.second) && !IsUsed(*named.second);
    });
    if ((foreign == nullptr && !any_codes) || IsReported(module)) return;
    bool said = false;
    for (const auto& [suffix, tensor] : module.tensors) {
      if (IsCodeMatrix(*tensor) && !IsUsed(*tensor)) {
        said |= ReportCodes(module, suffix, *tensor);
      }
    }
    if (foreign != nullptr && !said) ReportForeign(*foreign);
  }

  void Finish() {
    std::vector<Finding> found = findings_.Take();
    model_.findings.insert(model_.findings.end(), found.begin(), found.end());
  }

 private:
  // The tensor that shows that a module is quantized as another format does it, or nullptr. Codes
  // that nobody reads come first: two formats may have left theirs.
  const StoredTensor* Evidence(const ModuleTensors& module) const {
    const StoredTensor* codes = nullptr;
    for (const std::string_view suffix : kCodes) {
      const StoredTensor* tensor = module.Find(suffix);
      if (tensor != nullptr && (codes == nullptr || !IsUsed(*tensor))) codes = tensor;
    }
    if (codes != nullptr) return Unused(codes);
    for (const std::string_view suffix : kForeignSuffixes) {
      if (const StoredTensor* tensor = module.Find(suffix)) return Unused(tensor);
    }
    // Experts that are fused into one tensor keep their names: "gate_up_proj_scale_inv".
    for (const auto& [suffix, tensor] : module.tensors) {
      if (suffix.ends_with("_scale_inv") || suffix.ends_with("_packed")) return Unused(tensor);
    }
    const StoredTensor* weight = module.Find("weight");
    const bool is_codes = weight != nullptr && weight->shape.size() >= 2 &&
                          (weight->dtype == DType::kI32 || IsSmallCode(weight->dtype));
    return is_codes ? Unused(weight) : nullptr;
  }

  // transformers leaves layers in floating point that cannot be cut into its blocks, and stores the
  // scale that was to be theirs, which nothing has set. Its FP8Linear ignores that scale for a
  // weight of more than one byte, but its Fp8Dequantize, which loads the model where there is no
  // GPU or where the config says `dequantize`, multiplies any weight that has one, or fails where
  // the shapes do not divide (mirrors transformers 5.23, finegrained_fp8.py).
  bool IsLeftAsFloat(const ModuleTensors& module) const {
    const StoredTensor* weight = module.Find("weight");
    const bool is_float =
        weight != nullptr && (weight->dtype == DType::kBF16 || weight->dtype == DType::kF16 ||
                              weight->dtype == DType::kF32);
    return model_.format == "fp8" && is_float && module.Find("weight_scale_inv") != nullptr;
  }

  bool IsUsed(const StoredTensor& tensor) const { return used_[NumberOf(checkpoint_, tensor)]; }

  const StoredTensor* Unused(const StoredTensor* tensor) const {
    return IsUsed(*tensor) ? nullptr : tensor;
  }

  bool IsReported(const ModuleTensors& module) const {
    return std::ranges::any_of(model_.errors, [&](const Status& error) {
      return error.where().find(module.name) != std::string::npos;
    });
  }

  // Returns whether codes are beside scales, which is an error.
  bool ReportCodes(const ModuleTensors& module, std::string_view suffix,
                   const StoredTensor& tensor) {
    if (ScaleOf(module, suffix) != nullptr) {
      AddUnsupported(suffix, tensor, *ScaleOf(module, suffix));
      return true;
    }
    // A "bias" of bytes is a causal mask, which old models store.
    if (suffix != "weight" && suffix != "bias" && !IsScaleOfOthers(module, tensor)) {
      findings_.Add(
          "tensor-stays-quantized", tensor.name,
          fmt::format("{} of {} dimensions, which {} does not store; prepack leaves it as stored",
                      DTypeName(tensor.dtype), tensor.shape.size(), model_.format));
    }
    return false;
  }

  void AddUnsupported(std::string_view suffix, const StoredTensor& tensor,
                      const StoredTensor& scale) {
    const bool stacked = tensor.shape.size() > 2;
    std::string_view what =
        "prepack does not yet support the way in which this quantized weight is stored";
    // As DeepSeek V4 stores its experts, but not under its method.
    const bool is_bytes = tensor.dtype == DType::kI8 || tensor.dtype == DType::kU8;
    if (is_bytes && scale.dtype == DType::kF8E8M0) {
      what = "MXFP4 weights, two in a byte, are not supported yet";
    }
    if (stacked) what = "quantized experts stacked in one tensor are not supported yet";
    if (suffix.ends_with("_blocks")) {
      what = "MXFP4 weights in blocks are supported under quant_method mxfp4 only";
    }
    model_.errors.push_back(
        Unsupported(checkpoint_.Where(tensor), what)
            .Found(fmt::format("{} {}", DTypeName(tensor.dtype), ShowShape(tensor.shape)))
            .Expected(
                fmt::format("weights as {} stores them, one matrix per module", model_.format))
            .Hint(stacked ? "Save the model again with one linear layer per expert"
                          : "Quantize the float model to a format that prepack reads")
            .Id(FindingId("storage-unsupported")));
  }

  void ReportForeign(const StoredTensor& tensor) {
    model_.errors.push_back(
        Malformed(checkpoint_.Where(tensor),
                  fmt::format("the module is quantized, but not as {} stores it", model_.format))
            .Found(fmt::format("{} {}", DTypeName(tensor.dtype), ShowShape(tensor.shape)))
            .Hint("Is the folder a mixture of two checkpoints, or half converted?")
            .Id(FindingId("module-foreign")));
  }

  const Checkpoint& checkpoint_;
  QuantizedModel& model_;
  std::vector<bool> used_;  // by tensor
  FindingTally findings_;
};

}  // namespace

void ReportForeignModules(const Checkpoint& checkpoint, std::span<const ModuleTensors> modules,
                          QuantizedModel& model) {
  // So many errors say enough; each module is looked up in them.
  constexpr size_t kMaxErrors = 1000;
  Foreigners foreigners(checkpoint, model);
  for (const ModuleTensors& module : modules) {
    if (model.errors.size() > kMaxErrors) break;
    if (std::ranges::find(model.kept, module.name) == model.kept.end()) foreigners.Report(module);
  }
  foreigners.Finish();
}

}  // namespace prepack
