#include "prepack/convert/gguf/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/base/parallel.h"
#include "prepack/convert/gguf/row_source.h"
#include "prepack/gguf/header.h"
#include "prepack/gguf/keys.h"
#include "prepack/packed/output_hash.h"

namespace prepack::gguf {
namespace {

constexpr uint64_t kValueStripe = uint64_t{4} << 20;  // bytes
constexpr uint64_t kWritebackBytes = uint64_t{8} << 20;

template <typename T>
void AppendNumber(std::string& bytes, T number) {
  char raw[sizeof number];
  std::memcpy(raw, &number, sizeof number);
  bytes.append(raw, sizeof raw);
}

void AppendText(std::string& bytes, std::string_view text) {
  AppendNumber<uint64_t>(bytes, text.size());
  bytes += text;
}

std::string BeginOfEntry(std::string_view key, ValueType type) {
  std::string bytes;
  AppendText(bytes, key);
  AppendNumber<uint32_t>(bytes, static_cast<uint32_t>(type));
  return bytes;
}

// One tensor while it is written.
class TensorWork {
 public:
  TensorWork(const Checkpoint& checkpoint, const Plan& plan, const PlannedTensor& tensor)
      : tensor_(tensor),
        rows_(tensor.rows),
        row_bytes_(tensor.bytes() / std::max<uint64_t>(rows_.rows(), 1)),
        stripe_rows_(StripeRows(has_rows() ? tensor.dims.front() : 1)) {
    for (const RowPiece& piece : tensor.rows) {
      auto& source = sources_[piece.source];
      if (source != nullptr) continue;
      source = MakeRowSource(checkpoint, plan.sources.sources[piece.source], tensor.type);
    }
  }

  bool has_rows() const { return rows_.rows() != 0; }
  uint64_t stripes() const {
    return has_rows() ? CeilDiv(rows_.rows(), stripe_rows_)
                      : CeilDiv(tensor_.bytes(), kValueStripe);
  }
  uint64_t stripe_bytes() const { return has_rows() ? stripe_rows_ * row_bytes_ : kValueStripe; }

  // Reads rows of the stripe into buffers.rows.
  Status Read(uint64_t stripe, RowBuffers& buffers, Rounded& rounded) const {
    const uint64_t first = stripe * stripe_rows_;
    const uint64_t count = std::min(stripe_rows_, rows_.rows() - first);
    buffers.rows.resize(count * row_bytes_);
    return rows_.ForReads(first, count, [&](std::span<const PlacedRow> rows) {
      return ReadTogether(rows, first, buffers, rounded);
    });
  }

 private:
  Status ReadTogether(std::span<const PlacedRow> wanted, uint64_t stripe_begin, RowBuffers& buffers,
                      Rounded& rounded) const {
    const RowSource& source = *sources_.at(wanted.front().source);
    const uint64_t first = wanted.front().row;
    const uint64_t rows = wanted.back().row - first + 1;
    bool in_order = rows == wanted.size();
    for (size_t i = 1; in_order && i < wanted.size(); ++i) {
      in_order = wanted[i].index == wanted[i - 1].index + 1;
    }
    const std::span<std::byte> out(buffers.rows);
    buffers.rounded.assign(rows, {});
    if (in_order) {
      const uint64_t place = (wanted.front().index - stripe_begin) * row_bytes_;
      PREPACK_TRY(
          source.Read(first, out.subspan(place, rows * row_bytes_), buffers, buffers.rounded));
      for (const Rounded& row : buffers.rounded) rounded.Add(row);
      return {};
    }
    Scratch<std::byte> read(rows * row_bytes_);
    PREPACK_TRY(source.Read(first, {read.data(), read.size()}, buffers, buffers.rounded));
    for (const PlacedRow& row : wanted) {
      const uint64_t at = row.row - first;
      std::memcpy(&out[(row.index - stripe_begin) * row_bytes_], &read[at * row_bytes_],
                  row_bytes_);
      rounded.Add(buffers.rounded[at]);
    }
    return {};
  }

  const PlannedTensor& tensor_;
  RowList rows_;
  std::map<size_t, std::unique_ptr<RowSource>> sources_;
  uint64_t row_bytes_;
  uint64_t stripe_rows_;
};

// A tensor that is being written, from Begin to End.
struct TensorState {
  TensorState(const Checkpoint& checkpoint, const Plan& plan, const PlannedTensor& tensor)
      : work(checkpoint, plan, tensor) {}

  TensorWork work;
  StreamedHash hash;
  // Of each stripe: added in their order, so that sums of floats do not depend on threads.
  std::vector<Rounded> rounded = std::vector<Rounded>(work.stripes());
};

class TensorWriter final : public UnitWork {
 public:
  TensorWriter(const Checkpoint& checkpoint, const Plan& plan, File values, bool exact,
               bool flushes, unsigned threads, Progress& progress)
      : checkpoint_(checkpoint),
        plan_(plan),
        values_(std::move(values)),
        exact_(exact),
        flushes_(flushes),
        progress_(progress),
        buffers_(threads),
        files_(plan.tensors.size()),
        states_(plan.tensors.size()),
        written_(plan.tensors.size()) {}

  void Place(std::vector<OutputFile>& files, uint64_t alignment) {
    for (OutputFile& output : files) {
      uint64_t offset = output.data_start;
      for (size_t i = output.first; i < output.first + output.count; ++i) {
        files_[i] = &output.file;
        written_[i].offset = offset;
        offset += *CheckedAlignUp(plan_.tensors[i].bytes(), alignment);
      }
    }
  }

  uint64_t Begin(size_t unit) override {
    progress_.BeginItem(plan_.tensors[unit].name);
    states_[unit] = std::make_unique<TensorState>(checkpoint_, plan_, plan_.tensors[unit]);
    return states_[unit]->work.stripes();
  }

  Status Do(size_t unit, uint64_t task, bool own, unsigned worker) override {
    if (CancellationRequested()) return Interrupted(files_[unit]->path().string());
    TensorState& state = *states_[unit];
    RowBuffers& buffers = buffers_[worker];
    Rounded& rounded = state.rounded[task];
    PREPACK_TRY(ReadStripe(unit, task, buffers, rounded));
    if (exact_ && rounded.any()) return NotExact(unit, rounded);
    const uint64_t offset = task * state.work.stripe_bytes();
    if (own) state.hash.Offer(offset, buffers.rows);
    PREPACK_TRY(files_[unit]->WriteAt(written_[unit].offset + offset, buffers.rows));
    progress_.Add(buffers.rows.size());
    return {};
  }

  Status Flush(size_t /*unit*/, unsigned /*worker*/) override { return {}; }

  Status End(size_t unit) override {
    WrittenTensor& written = written_[unit];
    const uint64_t bytes = plan_.tensors[unit].bytes();
    PREPACK_TRY_ASSIGN(written.hash, states_[unit]->hash.Finish(
                                         {*files_[unit], written.offset, written.offset + bytes}));
    for (const Rounded& stripe : states_[unit]->rounded) written.rounded.Add(stripe);
    states_[unit].reset();
    if (flushes_ && unflushed_.fetch_add(bytes) + bytes > kWritebackBytes) {
      unflushed_ = 0;
      files_[unit]->StartWriteback();
    }
    return {};
  }

  std::vector<WrittenTensor> Take() { return std::move(written_); }

 private:
  Status ReadStripe(size_t unit, uint64_t stripe, RowBuffers& buffers, Rounded& rounded) const {
    const PlannedTensor& tensor = plan_.tensors[unit];
    if (states_[unit]->work.has_rows()) return states_[unit]->work.Read(stripe, buffers, rounded);
    if (!tensor.scales.empty()) {
      const std::span<const std::byte> scales = std::as_bytes(std::span(tensor.scales));
      buffers.rows.assign(scales.begin(), scales.end());
      return {};
    }
    const uint64_t offset = stripe * kValueStripe;
    buffers.rows.resize(std::min(kValueStripe, tensor.bytes() - offset));
    return values_.ReadAt(tensor.value_offset + offset, buffers.rows);
  }

  Status NotExact(size_t unit, const Rounded& rounded) const {
    std::string_view what = "a scale has no exact number in f16";
    if (rounded.minima != 0) what = "a minimum has no exact number in f16";
    if (rounded.weights != 0) what = "a weight has no exact number in this type";
    return Unsupported(fmt::format("tensor {}", plan_.tensors[unit].name), what)
        .Found(std::string(InfoOf(plan_.tensors[unit].type).name))
        .Hint("Without --exact it is rounded, and counted");
  }

  const Checkpoint& checkpoint_;
  const Plan& plan_;
  const File values_;
  const bool exact_;
  const bool flushes_;
  Progress& progress_;
  std::vector<RowBuffers> buffers_;                   // one per thread
  std::vector<File*> files_;                          // of each tensor
  std::vector<std::unique_ptr<TensorState>> states_;  // null before and after
  std::vector<WrittenTensor> written_;
  std::atomic<uint64_t> unflushed_ = 0;
};

}  // namespace

std::string TextEntry(std::string_view key, std::string_view text) {
  std::string bytes = BeginOfEntry(key, ValueType::kString);
  AppendText(bytes, text);
  return bytes;
}

std::string Uint16Entry(std::string_view key, uint16_t number) {
  std::string bytes = BeginOfEntry(key, ValueType::kUint16);
  AppendNumber(bytes, number);
  return bytes;
}

std::string Int32Entry(std::string_view key, int32_t number) {
  std::string bytes = BeginOfEntry(key, ValueType::kInt32);
  AppendNumber(bytes, number);
  return bytes;
}

std::string HeaderBytes(std::string_view entries, uint64_t count, uint64_t alignment,
                        std::span<const PlannedTensor> tensors) {
  std::string bytes(kMagic);
  AppendNumber<uint32_t>(bytes, kNewestVersion);
  AppendNumber<uint64_t>(bytes, tensors.size());
  AppendNumber<uint64_t>(bytes, count);
  bytes += entries;
  uint64_t offset = 0;
  for (const PlannedTensor& tensor : tensors) {
    AppendText(bytes, tensor.name);
    AppendNumber<uint32_t>(bytes, static_cast<uint32_t>(tensor.dims.size()));
    for (const uint64_t dim : tensor.dims) AppendNumber<uint64_t>(bytes, dim);
    AppendNumber<uint32_t>(bytes, static_cast<uint32_t>(tensor.type));
    AppendNumber<uint64_t>(bytes, offset);
    offset += *CheckedAlignUp(tensor.bytes(), alignment);
  }
  bytes.resize(*CheckedAlignUp(bytes.size(), alignment), '\0');
  return bytes;
}

uint64_t WriterMemory(const Plan& plan) {
  uint64_t most = kValueStripe;
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.rows.empty()) continue;
    // Codes, scales and rows that are read and then put in their order; floats on their way.
    most = std::max(most, StripeRows(tensor.dims.front()) * tensor.dims.front() * 8);
  }
  return most;
}

Result<std::vector<WrittenTensor>> WriteTensors(const Checkpoint& checkpoint, const Plan& plan,
                                                std::vector<OutputFile>& files, uint64_t alignment,
                                                WriteChoice choice, unsigned threads,
                                                Progress& progress) {
  PREPACK_TRY_ASSIGN(File values, File::OpenForRead(plan.values));
  TensorWriter writer(checkpoint, plan, std::move(values), choice.exact, choice.flushes, threads,
                      progress);
  writer.Place(files, alignment);
  progress.Begin("writing", plan.tensor_bytes());
  PREPACK_TRY(ForUnits(plan.tensors.size(), threads, writer));
  return writer.Take();
}

}  // namespace prepack::gguf
