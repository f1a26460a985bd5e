#pragma once

// A format is how a quantizer stores a checkpoint. Each has a folder of its own here and one row in
// formats.inc; the reader it provides turns every quantized layer into the canonical layout.

#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/accepted.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/quantization_config.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

// A checkpoint as its format's reader understands it. Refers to the Checkpoint, which must live
// longer.
struct QuantizedModel {
  std::string format;                                     // "compressed-tensors"
  const Json* quantization_config = nullptr;              // points into the checkpoint
  std::vector<std::unique_ptr<QuantizedLinear>> modules;  // ascending by module name
  // What modules that were fused are made of (members()); a reader leaves it empty.
  std::vector<std::unique_ptr<QuantizedLinear>> members;
  std::vector<std::string> kept;  // quantized modules that are left as they are stored
  std::vector<Finding> findings;
  // Of modules that are quantized but cannot be read; `modules` lacks them. See below for who
  // looks.
  std::vector<Status> errors;

  // A module, or the error that says why it cannot be read.
  void Add(Result<std::unique_ptr<QuantizedLinear>> module);
  // Nothing for an OK status.
  void AddError(Status status);
  // Puts modules in the place of others, which become members.
  void Replace(const std::set<const QuantizedLinear*>& gone,
               std::vector<std::unique_ptr<QuantizedLinear>> instead);
  // The module of this name, or null.
  const QuantizedLinear* Find(std::string_view module) const;
  // The same, faster if it is the module at `place` or one of the next.
  const QuantizedLinear* FindNear(size_t place, std::string_view module) const;
};

// By tensor of the checkpoint: does a module of the model lie in it?
std::vector<bool> TensorsInModules(const Checkpoint& checkpoint, const QuantizedModel& model);

struct FormatKeys;
struct ModuleTensors;

// What is known of a checkpoint before its reader begins, and where the reader puts what it
// notices.
struct ReadContext {
  const Checkpoint& checkpoint;
  std::span<const QuantizationConfig> configs;  // every declaration; never empty, the first counts
  std::span<const ModuleTensors> modules;       // every tensor of the checkpoint, by module
  FindingTally& findings;
};

struct Format {
  // The quant_method of its checkpoints, as quantization_config.h spells it.
  std::string_view id;
  // Adds every quantized module to `model`, from headers, configuration and a few small tensors.
  // Sound but unsupported input is kUnsupported, contradictory or incomplete input is kMalformed.
  // An error of a single module goes into `model.errors`, so that a report can name them all.
  // Modules may be added in any order.
  Status (*read)(const ReadContext& context, QuantizedModel& model);
  // What its writers put into the config (config_keys.h).
  const FormatKeys& keys;
};

std::span<const Format> AllFormats();

// Reads with the format that the checkpoint declares. No declaration, or one that no reader knows,
// is kUnsupported and says what to do. A module that cannot be read fails the whole. What is
// accepted is no error when the data is read.
Result<QuantizedModel> ReadQuantizedModel(const Checkpoint& checkpoint,
                                          const AcceptedFindings& accepted = {});
// The same for those who report on a checkpoint rather than use it: errors of single modules stay
// in the result, which may then have no module at all.
Result<QuantizedModel> ExamineQuantizedModel(const Checkpoint& checkpoint,
                                             const AcceptedFindings& accepted = {});

}  // namespace prepack
