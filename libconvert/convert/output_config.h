#ifndef PREPACK_CONVERT_OUTPUT_CONFIG_H_
#define PREPACK_CONVERT_OUTPUT_CONFIG_H_

#include "container/json_strict.h"
#include "convert/manifest.h"

namespace prepack {

// config.json of the output: the source's, with `quantization_config` replaced. What consumers
// need at first sight stands there (target, the layout and scheme of most modules, the exceptions,
// and what stayed unpacked); the manifest says all of it. The original stands under `source`.
Json OutputConfig(const Json& source_config, const Manifest& manifest);

}  // namespace prepack

#endif  // PREPACK_CONVERT_OUTPUT_CONFIG_H_
