#pragma once

// The whole conversion: a quantized checkpoint goes in, a packed folder comes out, or a part of
// one.
//
//   open, read, plan         from headers; nothing is written before the plan is known to be sound
//   shards                   created at full size, so that a full disk is noticed at once
//   units                    reader → layout → shard, and hashes, on all threads (shard_filler.h)
//   side files, manifest     then the hidden folder is renamed
//
// Memory: threads × panel, and the headers. The source is opened read-only. With `resume`, an
// interrupted run leaves its finished work behind, and the next run continues from there or finds
// that nothing is left to do (resume.h).

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/convert/output_shards.h"
#include "prepack/convert/plan.h"
#include "prepack/convert/source.h"
#include "prepack/convert/source_flow.h"
#include "prepack/formats/format.h"
#include "prepack/packed/conversion_observer.h"
#include "prepack/packed/run_identity.h"

namespace prepack {

struct ConvertOptions {
  std::filesystem::path source;
  std::filesystem::path output;
  PlanOptions plan;
  GgufSource gguf = {};       // if the source is such a file; a folder needs `like` then
  unsigned jobs = 0;          // threads; 0: one per CPU
  uint64_t memory_limit = 0;  // of anonymous memory, in bytes; 0: none
  bool replace = false;       // an existing packed folder may be replaced
  bool resume = false;        // go on where an interrupted run of the same conversion left off
  // Is the output on the disk when the conversion is done? Else the kernel writes the shards later,
  // as it does for cp: a power failure until then leaves an output that `verify` refuses.
  bool flush = true;
  Part part = {};  // of a conversion by many machines, see merge.h
  // For parts: the user promises that the source does not change, so no part reads more of it than
  // it needs, to prove that all were made of one source (see Witnesses in packed/run_identity.h).
  bool trust_source = false;
  uint64_t shard_bytes = kDefaultShardBytes;
  ConversionObserver* observer = nullptr;  // of a whole conversion; null: none
  FlowOptions flow = {};                   // shards that come and go while it runs
};

// What was done, for the user.
struct ConvertReport {
  std::filesystem::path output;  // what was made: the packed folder, or the part of one
  std::string target;
  bool was_done = false;  // with `resume`: the output was there already, nothing was done
  std::string format;
  Part part;
  size_t resumed_units = 0;  // modules and tensors that an interrupted run had finished
  size_t packed_modules = 0;
  std::map<std::string, size_t> layouts;           // layout id → modules
  std::map<std::string, std::string> kept;         // module → why it was left as stored
  std::map<std::string, std::string> dequantized;  // module → why no other layout took it
  size_t fused_modules = 0;                        // that are made of several of the source
  std::map<std::string, std::string> apart;        // what was not fused on request → why
  uint64_t rounded_scales = 0;                     // that have another value than the source's
  size_t copied_tensors = 0;
  uint64_t source_bytes = 0;  // of all tensors, or those that the part is made of
  uint64_t output_bytes = 0;  // of all shards
  size_t shards = 0;
  std::string source_fingerprint;
  std::vector<std::string> not_copied;  // of the source's folder, see Checkpoint::left_out
  std::vector<Finding> findings;
};

// Fails with nothing visible at the output path.
Result<ConvertReport> Convert(const ConvertOptions& options, Progress& progress);

}  // namespace prepack
