#include "prepack/inspect/module_arrays.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "prepack/base/progress.h"
#include "prepack/container/safetensors_writer.h"
#include "prepack/inspect/weight_values.h"
#include "prepack/io/posix.h"
#include "prepack/model/panel.h"

namespace prepack {
namespace {

// Where a tensor of the folder may hold an array byte for byte.
struct Candidate {
  const StoredTensor* tensor = nullptr;
  uint64_t offset = 0;  // from the start of the tensor
};

// An array that is read some output channels at a time.
struct ArraySource {
  ModuleArray array;
  uint64_t bytes = 0;
  std::vector<Candidate> candidates = {};
};

DType CodesDType(CodeType code) {
  switch (code) {
    case CodeType::kS8:
      return DType::kI8;
    case CodeType::kF8E4M3:
      return DType::kF8E4M3;
    case CodeType::kBF16:
      return DType::kBF16;
    case CodeType::kU4:
    case CodeType::kU8:
    case CodeType::kF4E2M1:
      break;
  }
  return DType::kU8;
}

class ArrayReader {
 public:
  ArrayReader(const OpenedFolder& folder, const ShownModule& module)
      : folder_(folder), module_(module) {}

  // Fills `out` with output channels [n0, n0 + rows) of the array.
  Status Read(const ModuleArray& array, uint64_t n0, uint64_t rows, std::vector<std::byte>& out) {
    if (array.name == "codes") return ReadCodes(n0, rows, out);
    if (array.name == "scales") {
      PREPACK_TRY(module_.ReadScales(n0, rows, scales_));
      return Copy(std::as_bytes(std::span(scales_)), out);
    }
    if (array.name == "zero_points") {
      PREPACK_TRY(ReadZeroPoints(n0, rows));
      return Copy(std::as_bytes(std::span(zero_points_)), out);
    }
    return ReadOrder(out);
  }

  // The first candidate that holds every byte of the array.
  Result<std::optional<Candidate>> FindInPlace(const ArraySource& source) {
    std::vector<Candidate> left = source.candidates;
    std::vector<std::byte> stored;
    const Status status = ForPanels(
        source.array, [&](uint64_t offset, std::span<const std::byte> bytes) -> Result<bool> {
          for (auto candidate = left.begin(); candidate != left.end();) {
            stored.resize(bytes.size());
            PREPACK_TRY(
                folder_.checkpoint->Read(*candidate->tensor, candidate->offset + offset, stored));
            candidate = std::ranges::equal(bytes, stored) ? candidate + 1 : left.erase(candidate);
          }
          return !left.empty();
        });
    if (!status.ok()) return status;
    return left.empty() ? std::nullopt : std::optional(left.front());
  }

  // Calls `work(offset, bytes)` with all bytes of the array in their order, until it gives false.
  template <typename Work>
  Status ForPanels(const ModuleArray& array, const Work& work) {
    const bool by_row = array.name != "input_order";
    const uint64_t rows = by_row ? module_.n : 1;
    const uint64_t panel = by_row ? module_.PanelRows() : 1;
    std::vector<std::byte> bytes;
    uint64_t offset = 0;
    for (uint64_t n0 = 0; n0 < rows; n0 += panel) {
      if (CancellationRequested()) return Interrupted(array.name);
      PREPACK_TRY(Read(array, n0, std::min(panel, rows - n0), bytes));
      PREPACK_TRY_ASSIGN(const bool go_on, work(offset, std::span<const std::byte>(bytes)));
      if (!go_on) return {};
      offset += bytes.size();
    }
    return {};
  }

 private:
  static Status Copy(std::span<const std::byte> from, std::vector<std::byte>& out) {
    out.assign(from.begin(), from.end());
    return {};
  }

  Status ReadCodes(uint64_t n0, uint64_t rows, std::vector<std::byte>& out) const {
    if (module_.linear == nullptr) {
      return ReadPackedCodes(*module_.packed, module_.first + n0, rows, out);
    }
    const PanelRange range{.n0 = n0, .rows = rows, .k0 = 0, .cols = module_.k};
    out.resize(PanelBytes(module_.scheme().code, range));
    return module_.linear->ReadCodes(range, out);
  }

  Status ReadZeroPoints(uint64_t n0, uint64_t rows) {
    if (module_.linear == nullptr) {
      return ReadPackedZeroPoints(*module_.packed, module_.first + n0, rows, zero_points_);
    }
    zero_points_.resize(rows * module_.groups());
    return module_.linear->ReadZeroPoints(n0, rows, zero_points_);
  }

  Status ReadOrder(std::vector<std::byte>& out) const {
    if (module_.linear == nullptr) {
      PREPACK_TRY_ASSIGN(const InputOrder order, ReadInputOrder(*module_.packed));
      return Copy(std::as_bytes(std::span(order)), out);
    }
    PREPACK_TRY_ASSIGN(const SharedOrder order, module_.linear->KOrder());
    return Copy(std::as_bytes(std::span(*order)), out);
  }

  const OpenedFolder& folder_;
  const ShownModule& module_;
  std::vector<float> scales_;
  std::vector<uint8_t> zero_points_;
};

// The tensors that the module is made of.
std::vector<const StoredTensor*> TensorsOf(const OpenedFolder& folder, const ShownModule& module) {
  std::vector<const StoredTensor*> tensors;
  if (module.linear != nullptr) {
    for (const std::string_view name : module.linear->source_tensors()) {
      tensors.push_back(folder.checkpoint->Find(name));
    }
  } else {
    const auto& modules = folder.packed->manifest().modules;
    if (const auto record = modules.find(module.packed->name()); record != modules.end()) {
      for (const auto& [part, tensor] : record->second.parts) {
        tensors.push_back(folder.checkpoint->Find(tensor.tensor));
      }
    }
  }
  std::erase(tensors, nullptr);
  return tensors;
}

class ArraysWriter {
 public:
  ArraysWriter(const OpenedFolder& folder, const ShownModule& module)
      : folder_(folder),
        module_(module),
        tensors_(TensorsOf(folder, module)),
        reader_(folder, module) {}

  Result<std::vector<ModuleArray>> Write(const std::filesystem::path& file) {
    ListArrays();
    PREPACK_TRY(FindInPlace());
    PREPACK_TRY(WriteOthers(file));
    std::vector<ModuleArray> arrays;
    for (ArraySource& source : sources_) arrays.push_back(std::move(source.array));
    return arrays;
  }

 private:
  void ListArrays() {
    const Scheme& scheme = module_.scheme();
    const bool has_codes = scheme.code != CodeType::kBF16;
    const uint64_t columns = IsNibble(scheme.code) ? CeilDiv(module_.k, 2) : module_.k;
    Add("codes", CodesDType(scheme.code), {module_.n, columns});
    if (has_codes) Add("scales", DType::kF32, {module_.n, module_.groups()});
    if (has_codes && !scheme.symmetric) {
      Add("zero_points", DType::kU8, {module_.n, module_.groups()});
    }
    if (module_.reordered()) Add("input_order", DType::kU32, {module_.k});
  }

  void Add(const char* name, DType dtype, std::vector<uint64_t> shape) {
    // Every dimension is one of a module that was checked when the folder was opened.
    uint64_t row_bytes = DTypeBits(dtype) / 8;
    for (size_t i = shape.size() == 1 ? 0 : 1; i < shape.size(); ++i) row_bytes *= shape[i];
    const uint64_t bytes = shape.size() == 1 ? row_bytes : shape.front() * row_bytes;
    ArraySource source{.array = {.name = name, .dtype = dtype, .shape = TensorShape(shape)},
                       .bytes = bytes};
    const uint64_t first = shape.size() == 1 ? 0 : module_.first * row_bytes;
    for (const StoredTensor* tensor : tensors_) {
      if (first <= tensor->bytes && bytes <= tensor->bytes - first) {
        source.candidates.push_back({.tensor = tensor, .offset = first});
      }
    }
    if (source.array.name == "codes") AddCodesInSource(source);
    sources_.push_back(std::move(source));
  }

  // An expert in a tensor of many.
  void AddCodesInSource(ArraySource& source) const {
    if (module_.linear == nullptr) return;
    const auto found =
        module_.linear->FindCodes({.n0 = 0, .rows = module_.n, .k0 = 0, .cols = module_.k});
    const StoredTensor* tensor = found ? folder_.checkpoint->Find(found->tensor) : nullptr;
    if (tensor != nullptr && found->offset <= tensor->bytes &&
        source.bytes <= tensor->bytes - found->offset) {
      source.candidates.push_back({.tensor = tensor, .offset = found->offset});
    }
  }

  Status FindInPlace() {
    for (ArraySource& source : sources_) {
      if (source.candidates.empty()) continue;
      PREPACK_TRY_ASSIGN(const std::optional<Candidate> found, reader_.FindInPlace(source));
      if (!found) continue;
      const StoredTensor& tensor = *found->tensor;
      source.array.in_place = true;
      source.array.file = folder_.checkpoint->files()[tensor.file].file.path();
      source.array.offset = tensor.offset + found->offset;
    }
    return {};
  }

  Status WriteOthers(const std::filesystem::path& file) {
    if (!file.has_filename()) return Usage(file.string(), "not the name of a file");
    const OrderlyEnd orderly_end;
    const std::filesystem::path partial = PartialSibling(file);
    Status status = WriteFile(partial, file);
    if (status.ok()) {
      const int result = posix::Rename(partial, file);
      if (result < 0) status = SystemError(file.string(), "cannot write it", -result);
    }
    if (!status.ok()) (void)posix::RemoveTree(partial);
    return status;
  }

  Status WriteFile(const std::filesystem::path& partial, const std::filesystem::path& file) {
    std::vector<TensorInfo> infos;
    std::map<std::string, ArraySource*> written;
    for (ArraySource& source : sources_) {
      if (source.array.in_place) continue;
      infos.push_back(
          {.name = source.array.name, .dtype = source.array.dtype, .shape = source.array.shape});
      written[source.array.name] = &source;
    }
    PREPACK_TRY_ASSIGN(SafetensorsPlan plan, PlanSafetensors(std::move(infos), {}));
    PREPACK_TRY_ASSIGN(SafetensorsWriter writer,
                       SafetensorsWriter::Replace(partial, std::move(plan)));
    writer.FlushEarly(false);  // nobody waits for the disk
    for (size_t i = 0; i < writer.header().tensors.size(); ++i) {
      const TensorInfo& tensor = writer.header().tensors[i];
      ModuleArray& array = written.at(tensor.name)->array;
      PREPACK_TRY(reader_.ForPanels(
          array, [&](uint64_t offset, std::span<const std::byte> bytes) -> Result<bool> {
            PREPACK_TRY(writer.Write(i, offset, bytes));
            return true;
          }));
      array.file = file;
      array.offset = writer.header().data_start + tensor.begin;
    }
    return writer.CheckArrived();
  }

  const OpenedFolder& folder_;
  const ShownModule& module_;
  std::vector<const StoredTensor*> tensors_;
  ArrayReader reader_;
  std::vector<ArraySource> sources_;
};

}  // namespace

Result<ModuleArrays> WriteModuleArrays(const OpenedFolder& folder, std::string_view module,
                                       const std::filesystem::path& file) {
  PREPACK_TRY_ASSIGN(const ShownModule shown, FindShown(folder, module));
  ModuleArrays result{.module = std::string(module),
                      .form = shown.form,
                      .scheme = shown.scheme(),
                      .n = shown.n,
                      .k = shown.k};
  PREPACK_TRY_ASSIGN(result.arrays, ArraysWriter(folder, shown).Write(file));
  return result;
}

}  // namespace prepack
