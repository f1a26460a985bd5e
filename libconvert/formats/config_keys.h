#ifndef PREPACK_FORMATS_CONFIG_KEYS_H_
#define PREPACK_FORMATS_CONFIG_KEYS_H_

// The keys that quantizers write into a quantization_config, format by format. A key that is not
// among them may mean anything: weights that divide by their scale differ from those that multiply
// in one key. So it is never passed over in silence.

#include "base/status.h"
#include "formats/finding_tally.h"
#include "formats/quantization_config.h"

namespace prepack {

// Adds a finding ("config-key-unread") for every key that no known writer of the format writes, of
// the declaration itself and of its rules for single modules. A key that is known to change what
// the weights mean, and is not read, is kUnsupported. Formats that are not read have no keys here.
Status CheckConfigKeys(const QuantizationConfig& config, FindingTally& findings);

}  // namespace prepack

#endif  // PREPACK_FORMATS_CONFIG_KEYS_H_
