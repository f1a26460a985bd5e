#ifndef PREPACK_PACKED_OUTPUT_CONFIG_H_
#define PREPACK_PACKED_OUTPUT_CONFIG_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/container/json.h"
#include "prepack/model/scheme.h"
#include "prepack/packed/manifest.h"

namespace prepack {

// A packed module, as far as config.json says anything of it. All of it must live longer.
struct PackedScheme {
  std::string_view module;
  std::string_view layout;
  const Scheme* scheme = nullptr;  // modules share theirs with others
};

// The quantization config of the output. What consumers need at first sight stands there (target,
// the layout and scheme of most modules, the exceptions, and what stayed unpacked); the manifest
// says all of it. The original stands under `source`. `modules` are ascending by name.
Json OutputQuantization(const Manifest& manifest, std::span<const PackedScheme> modules);

// config.json of the output: the source's text (see Checkpoint::config_text), in which the
// declarations of its quantization are replaced by that of the output. All other values keep the
// text that they had.
std::string OutputConfigText(const std::string& source_text, const Manifest& manifest,
                             std::span<const PackedScheme> modules);

// The schemes of a manifest's modules. The manifest must live longer.
std::vector<PackedScheme> PackedSchemes(const Manifest& manifest);

}  // namespace prepack

#endif  // PREPACK_PACKED_OUTPUT_CONFIG_H_
