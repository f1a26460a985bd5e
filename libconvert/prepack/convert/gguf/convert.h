#pragma once

// A quantized checkpoint as a GGUF file with the same weights. llama.cpp's own converter says what
// the file holds (converter.h); the weights go from the checkpoint into blocks of ggml as they are
// (writer.h). The file appears whole or not at all, and beside it its manifest, whose hash is in
// the file's metadata.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/convert/gguf/observer.h"
#include "prepack/convert/gguf/options.h"
#include "prepack/convert/gguf/pack_blocks.h"
#include "prepack/convert/gguf/plan.h"
#include "prepack/convert/gguf/sources.h"
#include "prepack/convert/source_flow.h"
#include "prepack/formats/finding.h"
#include "prepack/formats/format.h"

namespace prepack::gguf {

struct ConvertOptions {
  PlanOptions plan;
  std::filesystem::path output;  // the file, or the folder of split files
  uint64_t shard_bytes = 0;      // of tensors in a file; 0: all are in one
  unsigned jobs = 0;             // threads; 0: one per CPU
  uint64_t memory_limit = 0;     // of anonymous memory, in bytes; 0: none
  bool replace = false;          // an existing GGUF file may be replaced
  bool resume = false;           // as of prepack::ConvertOptions, like what follows
  bool flush = true;
  FlowOptions flow = {};
  FileObserver* observer = nullptr;  // of a source that is consumed; null: none
};

struct TypeCount {
  size_t tensors = 0;
  uint64_t bytes = 0;
};

struct ConvertReport {
  std::filesystem::path output;
  std::filesystem::path first_file;  // the output, or the first file in that folder
  bool was_done = false;     // with `resume`: the output was there already, nothing was done
  size_t resumed_units = 0;  // tensors, or runs of experts, that an interrupted run had finished
  std::string format;
  std::string converter_class;
  bool has_tokenizer = false;
  std::map<std::string, TypeCount> types;
  std::map<std::string, NotHeld, std::less<>>
      not_held;                            // modules that became floats, or were quantized
  std::map<std::string, Rounded> rounded;  // tensor → what was not exact
  std::vector<std::string> left_out;       // tensors of the checkpoint
  uint64_t source_bytes = 0;
  uint64_t output_bytes = 0;
  size_t files = 0;
  std::vector<Finding> findings;
};

// Fails with nothing visible at the output path.
Result<ConvertReport> Convert(const ConvertOptions& options, Progress& progress);

// The same of a plan that MakePlan has made of the checkpoint and its model.
Result<ConvertReport> WritePlanned(const ConvertOptions& options, Checkpoint& checkpoint,
                                   const QuantizedModel& model, const Plan& plan,
                                   Progress& progress);

}  // namespace prepack::gguf
