#pragma once

// The readers of the formats. What each reads, and what is stored, is at the top of its reader.cpp.

#include "prepack/base/status.h"
#include "prepack/formats/config_keys.h"
#include "prepack/formats/format.h"

namespace prepack {

#define PREPACK_FORMAT(id, reader, keys, decode)                  \
  namespace reader {                                              \
  Status Read(const ReadContext& context, QuantizedModel& model); \
  extern const FormatKeys keys;                                   \
  }
#include "prepack/formats/formats.inc"

}  // namespace prepack
