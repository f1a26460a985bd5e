#ifndef PREPACK_CONVERT_GGUF_WRITER_H_
#define PREPACK_CONVERT_GGUF_WRITER_H_

// Writes the tensors of a plan into a GGUF file, in bounded memory: threads × a stripe of rows.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "prepack/base/hash.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/convert/gguf/pack_blocks.h"
#include "prepack/convert/gguf/plan.h"
#include "prepack/io/file.h"

namespace prepack::gguf {

// What is known of a tensor once it is written.
struct WrittenTensor {
  uint64_t offset = 0;  // from the start of the file
  Hash128 hash;
  Rounded rounded;
};

// Metadata and the list of tensors, as they stand in front of the data. `entries` are the bytes of
// `count` key-value pairs.
std::string HeaderBytes(std::string_view entries, uint64_t count, uint64_t alignment,
                        const std::vector<PlannedTensor>& tensors);

// A key with a text, in the bytes of GGUF.
std::string TextEntry(std::string_view key, std::string_view text);

// Anonymous memory that writing takes on one thread.
uint64_t WriterMemory(const Plan& plan);

// Fills a file that has the size of header and tensors: all but the header. `data_start` is where
// the first tensor begins. With `exact` a number that has to be rounded is kUnsupported.
Result<std::vector<WrittenTensor>> WriteTensors(const Checkpoint& checkpoint, const Plan& plan,
                                                uint64_t data_start, uint64_t alignment, bool exact,
                                                unsigned threads, Progress& progress, File& file);

}  // namespace prepack::gguf

#endif  // PREPACK_CONVERT_GGUF_WRITER_H_
