#pragma once

// Writes the tensors of a plan into GGUF files, in bounded memory: threads × a stripe of rows.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/function_ref.h"
#include "prepack/base/hash.h"
#include "prepack/base/parallel.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/convert/gguf/pack_blocks.h"
#include "prepack/convert/gguf/plan.h"
#include "prepack/convert/gguf/row_source.h"
#include "prepack/convert/gguf/units.h"
#include "prepack/io/file.h"
#include "prepack/packed/output_hash.h"

namespace prepack::gguf {

// What is known of a unit, or of a tensor, once it is written.
struct Written {
  Hash128 hash;  // of its bytes
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
  uint64_t alignment = 0;  // of tensors in the file
  bool exact = false;      // a number that has to be rounded is kUnsupported
  bool flushes = true;     // the files will be flushed: the disk may begin at once
};

// Fills files that have the size of header and tensors: all but the headers.
class TensorWriter final : public UnitWork {
 public:
  // Called from any thread.
  using UnitEnded = FunctionRef<Status(size_t unit, const Written& written)>;

  // The arguments must outlive it. `values` is the plan's file of them.
  TensorWriter(const Checkpoint& checkpoint, const Plan& plan, const std::vector<OutputUnit>& units,
               std::vector<OutputFile>& files, File values, WriteChoice choice, unsigned threads,
               UnitEnded ended, Progress& progress);
  ~TensorWriter() override;

  // Where the bytes of a unit are.
  FileRange RangeOf(size_t unit) const;
  // It is there already. Before the first Run.
  void Keep(size_t unit, const Written& written) { written_[unit] = written; }
  // What is known of one that is there.
  const Written& WrittenOf(size_t unit) const { return *written_[unit]; }
  // Writes these units, unless they are there.
  Status Run(std::span<const size_t> units);
  // What was written, by tensor of the plan. After all units.
  Result<std::vector<Written>> Take();

 private:
  struct Work;

  uint64_t Begin(size_t turn) override;
  Status Do(size_t turn, uint64_t task, bool own, unsigned worker) override;
  Status Flush(size_t turn, unsigned worker) override;
  Status End(size_t turn) override;

  Status ReadStripe(size_t unit, uint64_t stripe, RowBuffers& buffers, Rounded& rounded) const;
  Status NotExact(size_t tensor, const Rounded& rounded) const;

  struct Slot {
    File* file = nullptr;
    uint64_t offset = 0;
  };

  const Checkpoint& checkpoint_;
  const Plan& plan_;
  const std::vector<OutputUnit>& units_;
  const File values_;
  const WriteChoice choice_;
  const unsigned threads_;
  const UnitEnded ended_;
  Progress& progress_;
  std::vector<RowBuffers> buffers_;              // one per thread
  std::vector<Slot> slots_;                      // of each tensor
  std::span<const size_t> turns_;                // the units of this run
  std::vector<std::unique_ptr<Work>> works_;     // of units; null before and after
  std::vector<std::optional<Written>> written_;  // by unit
  std::atomic<uint64_t> unflushed_ = 0;
};

}  // namespace prepack::gguf
