#include "prepack/convert/gguf/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/gguf/header.h"
#include "prepack/gguf/keys.h"

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

}  // namespace

// Rows of a tensor that are written as one.
class UnitRows {
 public:
  UnitRows(const Checkpoint& checkpoint, const Plan& plan, const OutputUnit& unit)
      : tensor_(plan.tensors[unit.tensor]),
        unit_(unit),
        rows_(tensor_.rows),
        row_bytes_(tensor_.bytes() / std::max<uint64_t>(rows_.rows(), 1)),
        stripe_rows_(StripeRows(has_rows() ? tensor_.dims.front() : 1)) {
    for (const RowPiece& piece : tensor_.rows) {
      auto& source = sources_[piece.source];
      if (source != nullptr) continue;
      source = MakeRowSource(checkpoint, plan.sources.sources[piece.source], tensor_.type);
    }
  }

  bool has_rows() const { return rows_.rows() != 0; }
  uint64_t stripes() const {
    return has_rows() ? CeilDiv(unit_.rows, stripe_rows_) : CeilDiv(tensor_.bytes(), kValueStripe);
  }
  uint64_t stripe_bytes() const { return has_rows() ? stripe_rows_ * row_bytes_ : kValueStripe; }

  // Reads rows of the stripe into buffers.rows.
  Status Read(uint64_t stripe, RowBuffers& buffers, Rounded& rounded) const {
    const uint64_t before = stripe * stripe_rows_;
    const uint64_t first = unit_.first + before;
    const uint64_t count = std::min(stripe_rows_, unit_.rows - before);
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
  const OutputUnit& unit_;
  RowList rows_;
  std::map<size_t, std::unique_ptr<RowSource>> sources_;
  uint64_t row_bytes_;
  uint64_t stripe_rows_;
};

// A unit that is being written, from Begin to End.
struct TensorWriter::Work {
  Work(const Checkpoint& checkpoint, const Plan& plan, const OutputUnit& unit)
      : rows(checkpoint, plan, unit) {}

  UnitRows rows;
  StreamedHash hash;
  // Of each stripe: added in their order, so that sums of floats do not depend on threads.
  std::vector<Rounded> rounded = std::vector<Rounded>(rows.stripes());
};

TensorWriter::TensorWriter(const Checkpoint& checkpoint, const Plan& plan,
                           const std::vector<OutputUnit>& units, std::vector<OutputFile>& files,
                           File values, WriteChoice choice, unsigned threads, UnitEnded ended,
                           Progress& progress)
    : checkpoint_(checkpoint),
      plan_(plan),
      units_(units),
      values_(std::move(values)),
      choice_(choice),
      threads_(threads),
      ended_(ended),
      progress_(progress),
      buffers_(threads),
      slots_(plan.tensors.size()),
      works_(units.size()),
      written_(units.size()) {
  for (OutputFile& output : files) {
    uint64_t offset = output.data_start;
    for (size_t i = output.first; i < output.first + output.count; ++i) {
      slots_[i] = {.file = &output.file, .offset = offset};
      offset += *CheckedAlignUp(plan_.tensors[i].bytes(), choice.alignment);
    }
  }
}

TensorWriter::~TensorWriter() = default;

FileRange TensorWriter::RangeOf(size_t unit) const {
  const OutputUnit& rows = units_[unit];
  const PlannedTensor& tensor = plan_.tensors[rows.tensor];
  const Slot& slot = slots_[rows.tensor];
  if (rows.rows == 0) return {*slot.file, slot.offset, slot.offset + tensor.bytes()};
  const uint64_t row_bytes = tensor.bytes() / tensor.row_count();
  const uint64_t begin = slot.offset + rows.first * row_bytes;
  return {*slot.file, begin, begin + rows.rows * row_bytes};
}

Status TensorWriter::Run(std::span<const size_t> units) {
  turns_ = units;
  return ForUnits(units.size(), threads_, *this);
}

uint64_t TensorWriter::Begin(size_t turn) {
  const size_t unit = turns_[turn];
  if (written_[unit]) return 0;
  progress_.BeginItem(plan_.tensors[units_[unit].tensor].name);
  works_[unit] = std::make_unique<Work>(checkpoint_, plan_, units_[unit]);
  return works_[unit]->rows.stripes();
}

Status TensorWriter::Do(size_t turn, uint64_t task, bool own, unsigned worker) {
  const size_t unit = turns_[turn];
  const size_t tensor = units_[unit].tensor;
  File& file = *slots_[tensor].file;
  if (CancellationRequested()) return Interrupted(file.path().string());
  Work& work = *works_[unit];
  RowBuffers& buffers = buffers_[worker];
  Rounded& rounded = work.rounded[task];
  PREPACK_TRY(ReadStripe(unit, task, buffers, rounded));
  if (choice_.exact && rounded.any()) return NotExact(tensor, rounded);
  const uint64_t offset = task * work.rows.stripe_bytes();
  if (own) work.hash.Offer(offset, buffers.rows);
  PREPACK_TRY(file.WriteAt(RangeOf(unit).begin + offset, buffers.rows));
  progress_.Add(buffers.rows.size());
  return {};
}

Status TensorWriter::Flush(size_t /*turn*/, unsigned /*worker*/) {
  return {};
}

Status TensorWriter::End(size_t turn) {
  const size_t unit = turns_[turn];
  const FileRange range = RangeOf(unit);
  Written written;
  PREPACK_TRY_ASSIGN(written.hash, works_[unit]->hash.Finish(range));
  for (const Rounded& stripe : works_[unit]->rounded) written.rounded.Add(stripe);
  works_[unit].reset();
  written_[unit] = written;
  const uint64_t bytes = range.end - range.begin;
  if (choice_.flushes && unflushed_.fetch_add(bytes) + bytes > kWritebackBytes) {
    unflushed_ = 0;
    slots_[units_[unit].tensor].file->StartWriteback();
  }
  return ended_(unit, written);
}

Status TensorWriter::ReadStripe(size_t unit, uint64_t stripe, RowBuffers& buffers,
                                Rounded& rounded) const {
  const PlannedTensor& tensor = plan_.tensors[units_[unit].tensor];
  if (works_[unit]->rows.has_rows()) return works_[unit]->rows.Read(stripe, buffers, rounded);
  if (!tensor.scales.empty()) {
    const std::span<const std::byte> scales = std::as_bytes(std::span(tensor.scales));
    buffers.rows.assign(scales.begin(), scales.end());
    return {};
  }
  const uint64_t offset = stripe * kValueStripe;
  buffers.rows.resize(std::min(kValueStripe, tensor.bytes() - offset));
  return values_.ReadAt(tensor.value_offset + offset, buffers.rows);
}

Status TensorWriter::NotExact(size_t tensor, const Rounded& rounded) const {
  std::string_view what = "a scale has no exact number in f16";
  if (rounded.minima != 0) what = "a minimum has no exact number in f16";
  if (rounded.weights != 0) what = "a weight has no exact number in this type";
  return Unsupported(fmt::format("tensor {}", plan_.tensors[tensor].name), what)
      .Found(std::string(InfoOf(plan_.tensors[tensor].type).name))
      .Hint("Without --exact it is rounded, and counted");
}

// The hash of a tensor that was written in several units comes from the file.
Result<std::vector<Written>> TensorWriter::Take() {
  std::vector<Written> tensors(plan_.tensors.size());
  std::vector<size_t> parts(tensors.size());
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    Written& tensor = tensors[units_[unit].tensor];
    tensor.hash = written_[unit]->hash;
    tensor.rounded.Add(written_[unit]->rounded);
    ++parts[units_[unit].tensor];
  }
  PREPACK_TRY(ParallelFor(tensors.size(), threads_, [&](size_t i, unsigned /*worker*/) -> Status {
    if (parts[i] == 1) return {};
    const Slot& slot = slots_[i];
    const FileRange range{*slot.file, slot.offset, slot.offset + plan_.tensors[i].bytes()};
    PREPACK_TRY_ASSIGN(tensors[i].hash, StreamedHash().Finish(range));
    return {};
  }));
  return tensors;
}

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

}  // namespace prepack::gguf
