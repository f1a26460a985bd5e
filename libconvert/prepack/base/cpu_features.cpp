#include "prepack/base/cpu_features.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <sstream>

namespace prepack {
namespace {

constexpr std::array kFeatures = {
    CpuFeatureName{CpuFeature::kAvx2, "avx2", "AVX2", "avx2 fma"},
    CpuFeatureName{CpuFeature::kAvx512, "avx512", "AVX-512", "avx512f avx512bw avx512dq avx512vl"},
    CpuFeatureName{CpuFeature::kVnni, "avx512_vnni", "VNNI", "avx512_vnni"},
    CpuFeatureName{CpuFeature::kBf16, "avx512_bf16", "BF16", "avx512_bf16"},
    CpuFeatureName{CpuFeature::kVbmi, "avx512_vbmi", "VBMI", "avx512vbmi"},
    CpuFeatureName{CpuFeature::kFp16, "avx512_fp16", "FP16", "avx512_fp16"},
    CpuFeatureName{CpuFeature::kAvxVnni, "avx_vnni", "AVX-VNNI", "avx_vnni"},
    CpuFeatureName{CpuFeature::kAmxInt8, "amx_int8", "AMX-INT8", "amx_tile amx_int8"},
    CpuFeatureName{CpuFeature::kAmxBf16, "amx_bf16", "AMX-BF16", "amx_tile amx_bf16"},
    CpuFeatureName{CpuFeature::kAmxFp16, "amx_fp16", "AMX-FP16", "amx_tile amx_fp16"},
    CpuFeatureName{CpuFeature::kAmxFp8, "amx_fp8", "AMX-FP8", "amx_tile amx_fp8"},
    CpuFeatureName{CpuFeature::kAmd, "amd", "a CPU by AMD", ""},
    CpuFeatureName{CpuFeature::kDotprod, "asimddp", "DOTPROD", "asimddp", true},
    CpuFeatureName{CpuFeature::kI8mm, "i8mm", "I8MM", "i8mm", true},
    CpuFeatureName{CpuFeature::kArmBf16, "arm_bf16", "BF16", "bf16", true},
    CpuFeatureName{CpuFeature::kSve, "sve", "SVE", "sve", true},
    CpuFeatureName{CpuFeature::kSme, "sme", "SME", "sme", true},
};

std::set<std::string> WordsOf(std::string_view text) {
  std::istringstream in{std::string(text)};
  return {std::istream_iterator<std::string>(in), std::istream_iterator<std::string>()};
}

}  // namespace

std::span<const CpuFeatureName> AllCpuFeatures() {
  return kFeatures;
}

std::string CpuFeaturesText(const CpuFeatures& features) {
  std::string text;
  for (const CpuFeatureName& row : kFeatures) {
    if (!features.Has(row.feature)) continue;
    text += (text.empty() ? "" : ", ") + std::string(row.name);
  }
  return text.empty() ? "nothing" : text;
}

CpuFeatures CpuFeaturesOf(std::string_view flags, std::string_view vendor) {
  const std::set<std::string> there = WordsOf(flags);
  CpuFeatures features;
  for (const CpuFeatureName& row : kFeatures) {
    const std::set<std::string> needed = WordsOf(row.flags);
    if (!needed.empty() && std::ranges::includes(there, needed)) features.Add(row.feature);
  }
  if (vendor == "AuthenticAMD") features.Add(CpuFeature::kAmd);
  return features;
}

}  // namespace prepack
