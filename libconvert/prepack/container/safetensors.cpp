// Reads safetensors headers straight into entries, without a DOM: a header may have 100 MB and two
// million tensors. What writers write is scanned (container/plain_json); what is written otherwise,
// or is wrong, is read by SAX events. The format allows neither holes nor
// overlaps, and this reader insists on it.

#include "prepack/container/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/hash.h"
#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/container/plain_json.h"

namespace prepack {
namespace {

// The start of a pointer file that Git LFS has not replaced with the real one.
constexpr std::string_view kLfsPointer = "version ";

std::string Bytes(uint64_t count) {
  return fmt::format("{} byte{}", count, count == 1 ? "" : "s");
}

std::string ShapeText(const TensorInfo& tensor) {
  return fmt::format("{} [{}]", DTypeName(tensor.dtype), fmt::join(tensor.shape, ", "));
}

std::string RangeText(const TensorInfo& tensor) {
  return fmt::format("[{}, {}]", tensor.begin, tensor.end);
}

Status TensorError(std::string_view where, const TensorInfo& tensor, std::string_view field,
                   std::string_view what) {
  return Malformed(fmt::format("{}: tensor {}: {}", where, tensor.name, field), what);
}

Status MissingBytes(std::string_view where, uint64_t missing) {
  return Malformed(where, fmt::format("{} missing at the end of the file", Bytes(missing)))
      .Hint("Is the download complete?");
}

// Compares the bytes that dtype and shape require with those in data_offsets.
Status CheckSize(const TensorInfo& tensor, std::string_view where) {
  const std::optional<uint64_t> elements = CheckedProduct(tensor.shape);
  const std::optional<uint64_t> bits =
      elements ? CheckedMul(*elements, DTypeBits(tensor.dtype)) : std::nullopt;
  if (!bits) {
    return TensorError(where, tensor, "shape", "the size overflows 64 bits")
        .Found(ShapeText(tensor));
  }
  if (*bits % 8 != 0) {
    return TensorError(where, tensor, "shape", "the last element does not end on a byte")
        .Found(fmt::format("{}, which is {} bits", ShapeText(tensor), *bits))
        .Expected("a multiple of 8 bits");
  }
  if (tensor.bytes() != *bits / 8) {
    return TensorError(where, tensor, "data_offsets", "the size does not match dtype and shape")
        .Found(fmt::format("{} in {}", Bytes(tensor.bytes()), RangeText(tensor)))
        .Expected(fmt::format("{} for {}", Bytes(*bits / 8), ShapeText(tensor)));
  }
  return {};
}

// Sorted by offset, tensors must start at 0, touch exactly, and end exactly at the end.
Status CheckRanges(const std::vector<TensorInfo>& sorted, uint64_t data_bytes,
                   std::string_view where) {
  uint64_t next = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    const TensorInfo& tensor = sorted[i];
    if (tensor.begin > next) {
      return TensorError(where, tensor, "data_offsets",
                         fmt::format("a gap of {} before it", Bytes(tensor.begin - next)))
          .Found(RangeText(tensor))
          .Expected(fmt::format("a start at {}", next));
    }
    if (tensor.begin < next) {
      return TensorError(where, tensor, "data_offsets",
                         fmt::format("overlaps tensor {}", sorted[i - 1].name))
          .Found(RangeText(tensor))
          .Expected(fmt::format("a start at {}", next));
    }
    next = tensor.end;
  }
  if (next != data_bytes) {
    return Malformed(where, fmt::format("{} after the last tensor", Bytes(data_bytes - next)))
        .Found(fmt::format("{} of data", Bytes(data_bytes)))
        .Expected(fmt::format("{}", next))
        .Hint("The file is damaged, or something was appended to it");
  }
  return {};
}

Status CheckTensors(const std::vector<TensorInfo>& sorted, uint64_t data_bytes,
                    std::string_view where) {
  PREPACK_TRY(CheckNamesDiffer(sorted, where));
  uint64_t end = 0;
  for (const TensorInfo& tensor : sorted) {
    if (tensor.begin > tensor.end) {
      return TensorError(where, tensor, "data_offsets", "the end is before the start")
          .Found(RangeText(tensor));
    }
    end = std::max(end, tensor.end);
  }
  if (end > data_bytes) {
    return MissingBytes(where, end - data_bytes)
        .Found(fmt::format("{} of data", Bytes(data_bytes)))
        .Expected(fmt::format("{}", end));
  }
  for (const TensorInfo& tensor : sorted) {
    PREPACK_TRY(CheckSize(tensor, where));
  }
  return CheckRanges(sorted, data_bytes, where);
}

constexpr std::string_view kMetadataName = "__metadata__";

// Reads a header that is as plain as those of all known writers. False: it is not, and whatever is
// in `header` means nothing.
class HeaderScan {
 public:
  HeaderScan(std::string_view json, SafetensorsHeader& header) : json_(json), header_(header) {}

  bool Run() {
    const bool scanned = TakeObject(json_, [&](std::string_view name) {
      return name == kMetadataName ? TakeMetadata() : TakeTensor(name);
    });
    return scanned && json_.AtEnd();
  }

 private:
  bool TakeMetadata() {
    if (std::exchange(has_metadata_, true)) return false;
    return TakeObject(json_, [&](std::string_view key) {
      const std::optional<std::string_view> text = json_.String();
      return text && header_.metadata.try_emplace(std::string(key), *text).second;
    });
  }

  bool TakeTensor(std::string_view name) {
    TensorInfo tensor;
    tensor.name = name;
    std::optional<DType> dtype;
    bool has_shape = false;
    FixedVector<uint64_t, 2> offsets;
    const bool scanned = TakeObject(json_, [&](std::string_view field) {
      if (field == "dtype" && !dtype) {
        const std::optional<std::string_view> text = json_.String();
        if (text) dtype = DTypeFromName(*text);
        return dtype.has_value();
      }
      if (field == "shape" && !has_shape) {
        has_shape = true;
        return TakeShape(tensor);
      }
      return field == "data_offsets" && offsets.empty() && TakeUpTo(offsets);
    });
    const bool is_whole = dtype && has_shape && offsets.size() == offsets.capacity();
    if (!scanned || !is_whole || name.size() > kMaxTensorNameBytes) return false;
    tensor.dtype = *dtype;
    tensor.begin = offsets[0];
    tensor.end = offsets[1];
    header_.tensors.push_back(std::move(tensor));
    return true;
  }

  bool TakeShape(TensorInfo& tensor) {
    FixedVector<uint64_t, kMaxTensorRank> dims;
    if (!TakeUpTo(dims)) return false;
    tensor.shape = TensorShape(std::span<const uint64_t>(dims.begin(), dims.size()));
    return true;
  }

  // As many numbers as the list has room for.
  template <size_t kMost>
  bool TakeUpTo(FixedVector<uint64_t, kMost>& numbers) {
    return TakeNumbers(json_, [&](uint64_t number) {
      if (numbers.size() == kMost) return false;
      numbers.push_back(number);
      return true;
    });
  }

  PlainJson json_;
  SafetensorsHeader& header_;
  bool has_metadata_ = false;
};

}  // namespace

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, uint64_t data_bytes,
                                                 std::string_view where) {
  // The Python library also accepts leading white space, although its README does not.
  const size_t start = json.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos || json[start] != '{') {
    return Malformed(fmt::format("{}: header", where), "the header is not a JSON object")
        .Found(start == std::string_view::npos ? "nothing" : Printable(json.substr(start, 16), 16))
        .Expected("{")
        .Hint("Is it a safetensors file?");
  }
  SafetensorsHeader header;
  if (!HeaderScan(json, header).Run()) {
    SafetensorsSax sax(where);
    PREPACK_TRY(sax.Run(json, fmt::format("{}: header", where)));
    header = sax.TakeHeader();
  }
  const auto range = [](const TensorInfo& tensor) { return std::pair(tensor.begin, tensor.end); };
  if (!std::ranges::is_sorted(header.tensors, {}, range)) {
    std::ranges::stable_sort(header.tensors, {}, range);
  }
  PREPACK_TRY(CheckTensors(header.tensors, data_bytes, where));
  header.data_start = kHeaderLengthBytes + json.size();
  return header;
}

Result<SafetensorsHeader> ReadSafetensorsHeader(const File& file) {
  const std::string where = file.path().string();
  if (file.size() < kHeaderLengthBytes) {
    return Malformed(where, "the file is too short for a safetensors file")
        .Found(Bytes(file.size()))
        .Expected("at least 8")
        .Hint("Is the download complete?");
  }
  std::array<std::byte, kHeaderLengthBytes> length_bytes{};
  PREPACK_TRY(file.ReadAt(0, length_bytes));
  uint64_t length = 0;
  for (size_t i = kHeaderLengthBytes; i-- > 0;)
    length = length << 8 | std::to_integer<uint64_t>(length_bytes[i]);

  if (length > kMaxHeaderBytes) {
    const std::string_view start(reinterpret_cast<const char*>(length_bytes.data()),
                                 kHeaderLengthBytes);
    return Malformed(where, "the header is longer than the format allows")
        .Found(Bytes(length))
        .Expected(fmt::format("at most {}", kMaxHeaderBytes))
        .Hint(start == kLfsPointer ? "It looks like a Git LFS pointer: fetch the real file with "
                                     "git lfs pull"
                                   : "Is it a safetensors file?");
  }
  if (length > file.size() - kHeaderLengthBytes) {
    return MissingBytes(where, length - (file.size() - kHeaderLengthBytes))
        .Found(fmt::format("{} after the length", Bytes(file.size() - kHeaderLengthBytes)))
        .Expected(fmt::format("a header of {}", length));
  }
  std::string json(static_cast<size_t>(length), '\0');
  PREPACK_TRY(file.ReadAt(kHeaderLengthBytes, std::as_writable_bytes(std::span(json))));
  return ParseSafetensorsHeader(json, file.size() - kHeaderLengthBytes - length, where);
}

Status CheckNamesDiffer(std::span<const TensorInfo> tensors, std::string_view where) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) names.emplace_back(tensor.name);
  if (HashesDiffer(names)) return {};
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin == names.end()) return {};
  return Malformed(fmt::format("{}: tensor {}", where, *twin), "the header has this name twice");
}

namespace {

// Containers around the fields of an entry: the header and the entry itself.
constexpr size_t kEntryDepth = 2;

bool IsControl(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
}

}  // namespace

std::string SafetensorsSax::WhereNow() const {
  switch (place_) {
    case Place::kHeader:
      return fmt::format("{}: header", file_);
    case Place::kMetadata:
      return fmt::format("{}: {}", file_, kMetadataName);
    case Place::kMetadataText:
      return fmt::format("{}: {}: {}", file_, kMetadataName, metadata_key_);
    default:
      break;
  }
  std::string tensor = fmt::format("{}: tensor {}", file_, tensor_.name);
  switch (place_) {
    case Place::kDType:
      return tensor + ": dtype";
    case Place::kShape:
    case Place::kDim:
      return tensor + ": shape";
    case Place::kOffsets:
    case Place::kOffset:
      return tensor + ": data_offsets";
    default:
      return tensor;
  }
}

bool SafetensorsSax::WrongType(std::string_view found) {
  std::string_view expected;
  switch (place_) {
    case Place::kHeader:
    case Place::kMetadata:
    case Place::kEntry:
      expected = "an object";
      break;
    case Place::kMetadataText:
    case Place::kDType:
      expected = "a string";
      break;
    case Place::kShape:
    case Place::kOffsets:
      expected = "an array of integers";
      break;
    case Place::kDim:
    case Place::kOffset:
    case Place::kExtra:
      expected = "an integer";
      break;
  }
  return Fail(Malformed(WhereNow(), "wrong type of value").Found(found).Expected(expected));
}

bool SafetensorsSax::Scalar(std::string_view found) {
  return place_ == Place::kExtra || WrongType(found);
}

bool SafetensorsSax::BadInteger(std::string_view found) {
  if (place_ != Place::kDim && place_ != Place::kOffset) return Scalar(found);
  return Fail(Malformed(WhereNow(), "not a valid size")
                  .Found(found)
                  .Expected("an integer from 0 to 18446744073709551615"));
}

bool SafetensorsSax::number_integer(number_integer_t value) {
  // Called only for numbers with a minus sign; nlohmann takes others as unsigned.
  return BadInteger(value == 0 ? "-0" : fmt::format("{}", value));
}

bool SafetensorsSax::number_float(number_float_t /*value*/, const std::string& text) {
  return BadInteger(Printable(text, 40));
}

bool SafetensorsSax::number_unsigned(number_unsigned_t value) {
  if (place_ == Place::kDim) {
    if (dims_.size() == kMaxTensorRank) {
      return Fail(Malformed(WhereNow(), "too many dimensions")
                      .Expected(fmt::format("at most {}", kMaxTensorRank)));
    }
    dims_.push_back(value);
    return true;
  }
  if (place_ == Place::kOffset) {
    if (offsets_.size() == 2)
      return Fail(Malformed(WhereNow(), "more than two numbers").Expected("start and end"));
    offsets_.push_back(value);
    return true;
  }
  return Scalar("a number");
}

bool SafetensorsSax::string(std::string& value) {
  if (place_ == Place::kMetadataText) {
    if (!header_.metadata.try_emplace(metadata_key_, std::move(value)).second)
      return Duplicate("key", metadata_key_);
    return true;
  }
  if (place_ == Place::kDType) {
    const std::optional<DType> dtype = DTypeFromName(value);
    if (!dtype) {
      return Fail(Malformed(WhereNow(), "unknown dtype")
                      .Found(Printable(value, 40))
                      .Expected(fmt::format("one of {}", AllDTypeNames())));
    }
    tensor_.dtype = *dtype;
    return true;
  }
  return Scalar("a string");
}

bool SafetensorsSax::start_object(size_t /*elements*/) {
  switch (place_) {
    case Place::kHeader:
    case Place::kMetadata:
    case Place::kEntry:
      break;
    case Place::kExtra:
      extra_names_.emplace_back();
      break;
    default:
      return WrongType("an object");
  }
  return Enter();
}

bool SafetensorsSax::start_array(size_t /*elements*/) {
  switch (place_) {
    case Place::kShape:
      place_ = Place::kDim;
      break;
    case Place::kOffsets:
      place_ = Place::kOffset;
      break;
    case Place::kExtra:
      break;
    default:
      return WrongType("an array");
  }
  return Enter();
}

bool SafetensorsSax::end_array() {
  if (place_ == Place::kOffset && offsets_.size() != 2) {
    return Fail(Malformed(WhereNow(), "fewer than two numbers")
                    .Found(fmt::format("{}", offsets_.size()))
                    .Expected("start and end"));
  }
  Leave();
  return true;
}

bool SafetensorsSax::key(std::string& name) {
  if (depth() == 1) {
    if (name != kMetadataName) return BeginTensor(name);
    place_ = Place::kMetadata;
    if (std::exchange(has_metadata_, true)) return Duplicate("key", name);
    return true;
  }
  if (depth() == kEntryDepth && place_ != Place::kMetadata && place_ != Place::kMetadataText)
    return BeginField(name);
  if (place_ == Place::kExtra) {
    if (!extra_names_.back().insert(name).second) return Duplicate("field", name);
    return true;
  }
  metadata_key_ = std::move(name);
  place_ = Place::kMetadataText;
  return true;
}

bool SafetensorsSax::BeginTensor(const std::string& name) {
  place_ = Place::kEntry;
  tensor_ = {};
  tensor_.name = name;  // copied: the parser's string may have room for twice as much
  has_dtype_ = has_shape_ = has_offsets_ = false;
  dims_.clear();
  offsets_.clear();
  extra_names_.assign(1, {});
  if (tensor_.name.size() > kMaxTensorNameBytes) {
    return Fail(Malformed(fmt::format("{}: tensor {}", file_, Printable(tensor_.name, 60)),
                          "the name is too long")
                    .Found(fmt::format("{} bytes", tensor_.name.size()))
                    .Expected(fmt::format("at most {}", kMaxTensorNameBytes)));
  }
  if (std::any_of(tensor_.name.begin(), tensor_.name.end(), IsControl))
    return Fail(Malformed(WhereNow(), "the name contains a control character"));
  return true;
}

bool SafetensorsSax::BeginField(std::string_view name) {
  // Back at the entry itself, so that an error is not attributed to the previous field.
  place_ = Place::kEntry;
  bool is_new = true;
  Place field = Place::kExtra;
  if (name == "dtype") {
    field = Place::kDType;
    is_new = !std::exchange(has_dtype_, true);
  } else if (name == "shape") {
    field = Place::kShape;
    is_new = !std::exchange(has_shape_, true);
  } else if (name == "data_offsets") {
    field = Place::kOffsets;
    is_new = !std::exchange(has_offsets_, true);
  } else {
    is_new = extra_names_.front().emplace(name).second;
  }
  if (!is_new) return Duplicate("field", name);
  place_ = field;
  return true;
}

bool SafetensorsSax::end_object() {
  if (depth() > kEntryDepth) {
    extra_names_.pop_back();
  } else if (depth() == kEntryDepth && place_ != Place::kMetadata &&
             place_ != Place::kMetadataText) {
    if (!EndTensor()) return false;
  }
  Leave();
  return true;
}

bool SafetensorsSax::EndTensor() {
  place_ = Place::kEntry;
  std::string_view missing;
  if (!has_offsets_) missing = "data_offsets";
  if (!has_shape_) missing = "shape";
  if (!has_dtype_) missing = "dtype";
  if (!missing.empty())
    return Fail(Malformed(WhereNow(), fmt::format("the field {} is missing", missing)));
  tensor_.shape = TensorShape(std::span(dims_));
  tensor_.begin = offsets_[0];
  tensor_.end = offsets_[1];
  header_.tensors.push_back(std::move(tensor_));
  return true;
}

bool SafetensorsSax::Duplicate(std::string_view what, std::string_view name) {
  return Fail(Malformed(WhereNow(), fmt::format("duplicate {}", what)).Found(Printable(name, 60)));
}

}  // namespace prepack
