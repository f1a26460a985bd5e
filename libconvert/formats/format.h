#ifndef PREPACK_FORMATS_FORMAT_H_
#define PREPACK_FORMATS_FORMAT_H_

// A format is how a quantizer stores a checkpoint. Each has one file in this folder and one row in
// the table below; the reader it provides turns every quantized layer into the canonical layout.

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "canonical/quantized_linear.h"
#include "container/checkpoint.h"

namespace prepack {

// Something about a checkpoint that the user should know, but that does not stop the work.
struct Finding {
  std::string where;    // module, tensor or field
  std::string message;  // a sentence, with the numbers
};

// A checkpoint as its format's reader understands it. Refers to the Checkpoint, which must live
// longer.
struct QuantizedModel {
  std::string format;  // "compressed-tensors"
  Json quantization_config;
  std::vector<std::unique_ptr<QuantizedLinear>> modules;  // ascending by module name
  std::vector<Finding> findings;

  // The module of this name, or null.
  const QuantizedLinear* Find(std::string_view module) const;
};

struct Format {
  std::string_view id;
  // True when the checkpoint says that it is of this format.
  bool (*detect)(const Checkpoint& checkpoint);
  // Describes every quantized module, from headers and configuration only. Sound but unsupported
  // input is kUnsupported, contradictory or incomplete input is kMalformed.
  Result<QuantizedModel> (*read)(const Checkpoint& checkpoint);
};

std::span<const Format> AllFormats();

// Reads with the format that the checkpoint declares. No declaration, or one that no reader knows,
// is kUnsupported and lists what is known.
Result<QuantizedModel> ReadQuantizedModel(const Checkpoint& checkpoint);

}  // namespace prepack

#endif  // PREPACK_FORMATS_FORMAT_H_
