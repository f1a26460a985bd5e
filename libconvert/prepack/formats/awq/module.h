#pragma once

// The quantization config of an AWQ checkpoint, in the spellings of all its writers (mirrors
// AutoAWQ 0.2.9, awq/models/_config.py; GPTQModel 7.3, quantization/config.py; and the early
// quant_config.json).
//
//     bits | w_bit, group_size | q_group_size, zero_point | sym (its opposite),
//     version | format | checkpoint_format, in any case
//
// AMD Quark writes GEMM, too, with a pack_method (mirrors amd-quark 0.6 and 0.13,
// export/main_export/quant_config_parser.py): "reorder" is AWQ's order of nibbles, "order" is that
// of the channels. Where zero_point is false, its codes are two's complement, and zero points 0.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/module_tensors.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/model/quantized_linear.h"

namespace prepack::awq {

struct Config {
  std::string where;  // "config.json: quantization_config"
  int64_t bits = 4;
  int64_t group_size = 128;  // positive, or -1: one group of K
  bool zero_point = true;
  std::string version = "gemm";  // in lower case
  std::string pack_method;       // Quark's key: "reorder" or "order"; empty: another writer
  bool lm_head = false;
  std::vector<std::string> not_converted;  // modules_to_not_convert
  const Json* dynamic = nullptr;           // GPTQModel's overrides by module, or nullptr
};

// Parses the first of `configs`, which is not empty, and compares the copies with it: values that
// differ are kMalformed ("config-conflict"). Widths and words that are not read, and rotations, are
// kUnsupported.
Result<Config> ParseConfig(std::span<const QuantizationConfig> configs);

// Which of the layouts that go by the name of AWQ a module's tensors have. The config's `version`
// may be missing or wrong and nobody checks it; the shapes tell. gs is the group size, G = K/gs,
// P = G rounded up to whole padded words (PaddedAwqGroups).
//
//     layout          qweight             qzeros               scales
//     gemm            I32 [K, N/8]        I32 [G, N/8]         [G, N]
//     gemv            I32 [N, K/8]        I32 [N, P/8]         [N, P]
//     gemv_fast       I16 [N/4, K]        float [P, N]         [P, N]    also llm-awq's; there
//                                                                       qzeros is "scaled_zeros"
//     marlin          I32 [K/16, 2·N]     none                 [G, N]    GPU tiles
//     GPTQ            I32 [K/8, N]        I32 [G, N/8]         [G, N]    another format

enum class Layout : uint8_t { kGemm, kGemv, kGemvFast, kMarlin, kGptq };

// As the config's `version` names it: "gemm", "gemv", "gemv_fast", "marlin"; "GPTQ".
std::string_view LayoutName(Layout layout);

// All of rank 2; qzeros may be nullptr.
struct Tensors {
  const StoredTensor* qweight = nullptr;
  const StoredTensor* qzeros = nullptr;
  const StoredTensor* scales = nullptr;
};

// P for K input channels; nullopt for a group size that the GEMV layouts do not have.
std::optional<uint64_t> PaddedAwqGroups(uint64_t k, uint64_t group_size);

// The one layout that the shapes fit; kMalformed when there is none. `module` is for the error.
Result<Layout> DecideLayout(const Checkpoint& checkpoint, std::string_view module,
                            const Tensors& tensors);

// Describes one module that is stored in one of AWQ's layouts, whichever format declares it: checks
// its tensors against each other and against the settings, from headers alone.

// What a config says of a module.
struct Settings {
  std::string where;  // "config.json: quantization_config", for errors
  uint32_t bits = 4;
  int64_t group_size = 128;  // positive, or -1: K
  bool zero_point = true;    // false: every zero point is 8, whether stored or not
  std::string version;       // the layout by name, in lower case; empty: the config names none
  std::string pack_method;   // as in Config

  bool is_signed() const { return !pack_method.empty() && !zero_point; }
  bool in_order() const { return pack_method == "order"; }
};

// `module` has a qweight. What is sound but not read (other widths, Marlin's tiles, stacked
// experts) is kUnsupported, tensors that contradict each other or the settings are kMalformed. A
// version that names another layout than the tensors have is a finding. The result refers to the
// checkpoint.
Result<std::unique_ptr<QuantizedLinear>> DescribeModule(const Checkpoint& checkpoint,
                                                        const ModuleTensors& module,
                                                        const Settings& settings,
                                                        FindingTally& findings);

}  // namespace prepack::awq
