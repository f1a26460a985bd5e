#include "formats/foreign_methods.h"

#include <fmt/format.h>

#include <array>

#include "formats/finding.h"

namespace prepack {

namespace {

struct ForeignMethod {
  std::string_view method;  // quant_method, with - for _
  std::string_view name;    // for people
  std::string_view hint;
};

constexpr std::string_view kRequantize =
    "Quantize the float model with llm-compressor, GPTQModel, AutoAWQ or AutoRound";
constexpr std::string_view kGpuTiles =
    "The weights are tiled for GPUs; use the checkpoint that they were converted from";
constexpr std::string_view kDequantize =
    "Save the model in 16 bits and quantize that to integers or FP8";

constexpr auto kForeignMethods = std::to_array<ForeignMethod>({
    {"marlin", "Marlin", kGpuTiles},
    {"gptq-marlin", "Marlin", kGpuTiles},
    {"gptq-marlin-24", "sparse Marlin", kGpuTiles},
    {"bitblas", "BitBLAS", kGpuTiles},
    {"gptq-bitblas", "BitBLAS", kGpuTiles},
    {"qqq", "QQQ", kGpuTiles},
    {"bitsandbytes", "bitsandbytes", kRequantize},
    {"hqq", "HQQ", kRequantize},
    {"exl2", "EXL2", kRequantize},
    {"exl3", "EXL3", kRequantize},
    {"gguf", "GGUF",
     "llama.cpp reads such blocks from .gguf files only; quantize the float model with "
     "llm-compressor, GPTQModel, AutoAWQ or AutoRound"},
    {"aqlm", "AQLM", kRequantize},
    {"quip", "QuIP#", kRequantize},
    {"vptq", "VPTQ", kRequantize},
    {"spqr", "SpQR", kRequantize},
    {"higgs", "HIGGS", kRequantize},
    {"eetq", "EETQ", kRequantize},
    {"torchao", "torchao", kRequantize},
    {"quanto", "Quanto", kRequantize},
    {"quark", "Quark", "Export it in the AWQ or compressed-tensors format"},
    {"mxfp4", "MXFP4", kDequantize},
    {"modelopt", "ModelOpt (FP8 or NVFP4)", kDequantize},
    {"modelopt-fp4", "NVFP4", kDequantize},
    {"fbgemm-fp8", "FBGEMM FP8", kDequantize},
});

}  // namespace

Status RefuseMethod(std::string_view method, std::string_view where, std::string_view known) {
  const auto refuse = [&](std::string_view name, std::string_view hint) {
    return Unsupported(where, fmt::format("{} checkpoints are not read", name))
        .Found(fmt::format("quant_method \"{}\"", Printable(method)))
        .Expected(known)
        .Hint(hint)
        .Id(FindingId("method-unsupported"));
  };
  for (const ForeignMethod& foreign : kForeignMethods) {
    if (foreign.method == method) return refuse(foreign.name, foreign.hint);
  }
  return refuse(Printable(method), kRequantize);
}

}  // namespace prepack
