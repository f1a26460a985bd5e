#ifndef PREPACK_CONVERT_GGUF_WRITER_H_
#define PREPACK_CONVERT_GGUF_WRITER_H_

// Writes the tensors of a plan into a GGUF file, in bounded memory: threads × a stripe of rows.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
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
  uint64_t offset = 0;  // from the start of its file
  Hash128 hash;
  Rounded rounded;
};

// Metadata and the list of tensors, as they stand in front of the data. `entries` are the bytes of
// `count` key-value pairs.
std::string HeaderBytes(std::string_view entries, uint64_t count, uint64_t alignment,
                        std::span<const PlannedTensor> tensors);

// A key with a text, or a number, in the bytes of GGUF.
std::string TextEntry(std::string_view key, std::string_view text);
std::string Uint16Entry(std::string_view key, uint16_t number);
std::string Int32Entry(std::string_view key, int32_t number);

// A file of the model, which has its size: tensors [first, first + count) of the plan.
struct OutputFile {
  File file;
  uint64_t data_start = 0;  // where the first tensor begins
  size_t first = 0;
  size_t count = 0;
};

// Anonymous memory that writing takes on one thread.
uint64_t WriterMemory(const Plan& plan);

struct WriteChoice {
  bool exact = false;   // a number that has to be rounded is kUnsupported
  bool flushes = true;  // the files will be flushed: the disk may begin at once
};

// Fills files that have the size of header and tensors: all but the headers.
Result<std::vector<WrittenTensor>> WriteTensors(const Checkpoint& checkpoint, const Plan& plan,
                                                std::vector<OutputFile>& files, uint64_t alignment,
                                                WriteChoice choice, unsigned threads,
                                                Progress& progress);

}  // namespace prepack::gguf

#endif  // PREPACK_CONVERT_GGUF_WRITER_H_
