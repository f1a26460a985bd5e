#pragma once

// What a GGUF file of a model will hold: for every tensor its type, and where its rows come from.
// Names, shapes and the order of rows are those of llama.cpp's converter (converter.h); types
// follow from the codes.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/convert/gguf/options.h"
#include "prepack/convert/gguf/rows.h"
#include "prepack/convert/gguf/sources.h"
#include "prepack/gguf/ggml_types.h"

namespace prepack::gguf {

struct PlannedTensor {
  std::string name;
  GgmlType type = GgmlType::kF32;
  Dims dims;
  std::vector<RowPiece> rows;            // all rows of the tensor, in their order; or none:
  uint64_t value_offset = 0;             // then its bytes are there in the file of values
  Origin origin;                         // of these
  std::vector<float> scales;             // then these are its values, if there are some
  std::vector<std::string_view> rounds;  // what may have to be rounded, see WhatRounds

  uint64_t bytes() const { return *BytesOf(type, dims); }
  uint64_t row_count() const;
};

struct Plan {
  Sources sources;
  std::vector<PlannedTensor> tensors;  // in the order of the file
  std::filesystem::path metadata;      // a GGUF file without tensors
  std::filesystem::path values;        // what the converter has computed
  std::string converter_class;         // "LlamaModel"
  bool has_tokenizer = false;

  uint64_t tensor_bytes() const;
};

// Asks the converter. `scratch` is an empty folder for what it writes.
Result<Plan> MakePlan(const Checkpoint& checkpoint, const QuantizedModel& model,
                      const PlanOptions& options, const std::filesystem::path& scratch);

}  // namespace prepack::gguf
