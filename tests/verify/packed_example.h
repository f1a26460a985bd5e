#pragma once

// Folders that Convert made, and the GEMM level on them.

#include <filesystem>
#include <map>
#include <string>

#include "prepack/convert/convert.h"
#include "prepack/verify/gemm_check.h"
#include "prepack/verify/verify.h"
#include "status_matchers.h"

namespace prepack::testing {

// Modules of every real checkpoint of fixtures/.
inline const std::string kDownProj = "model.layers.0.mlp.down_proj";
inline const std::string kQProj = "model.layers.0.self_attn.q_proj";  // 384 x 384

struct PackedExample {
  const char* target = "";
  WantedScheme scheme = WantedScheme::kAuto;
  DType activations = DType::kBF16;
  bool fuse = false;
};

// Packs with what no layout takes dequantized.
inline ConvertReport Pack(const std::filesystem::path& source, const PackedExample& example,
                          const std::filesystem::path& output) {
  ConvertOptions options;
  options.source = source;
  options.output = output;
  options.plan.target = example.target;
  options.plan.activation_dtype = example.activations;
  options.plan.fallback = Fallback::kDequantize;
  options.plan.fuse = example.fuse;
  if (!FindTarget(example.target)->checkpoint) {
    options.plan.schemes = {{.pattern = "", .scheme = example.scheme}};
  }
  Progress progress;
  return Value(Convert(options, progress));
}

// The GEMM level alone, by the models: hashes are not looked at.
struct GemmResult {
  LevelResult level;
  std::map<std::string, ModuleVerification> modules;
};

inline GemmResult RunModels(const std::filesystem::path& output,
                            const std::filesystem::path& source,
                            uint64_t sampled_weights = UINT64_MAX) {
  const PackedFolder folder = Value(PackedFolder::Open(output));
  const Checkpoint checkpoint = Value(Checkpoint::Open(source));
  const SecondDecoder decoder =
      Value(SecondDecoder::Make(checkpoint, folder.manifest().source_format));
  GemmResult result;
  for (const auto& [name, record] : folder.manifest().modules) {
    result.modules[name].module = name;
    result.modules[name].layout = record.layout;
  }
  Progress progress;
  const GemmOptions options{.products = {.sampled_weights = sampled_weights}};
  const SqnrBars bars;
  GemmCheck check(folder, decoder, options, bars, progress);
  for (size_t i = 0; i < folder.manifest().modules.size(); ++i) RequireOk(check.Multiply(i, 1));
  result.level = check.Finish(result.modules).gemm;
  return result;
}

}  // namespace prepack::testing
