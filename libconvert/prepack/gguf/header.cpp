#include "prepack/gguf/header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <unordered_set>

#include "prepack/base/checked.h"
#include "prepack/base/text.h"
#include "prepack/gguf/cursor.h"
#include "prepack/gguf/keys.h"

namespace prepack::gguf {
namespace {

constexpr std::array<std::string_view, 13> kValueTypeNames = {
    "UINT8", "INT8",   "UINT16", "INT16",  "UINT32", "INT32",  "FLOAT32",
    "BOOL",  "STRING", "ARRAY",  "UINT64", "INT64",  "FLOAT64"};
constexpr std::array<uint32_t, 13> kScalarBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// What the shortest entries take: a key of no bytes and a value of one, a name of no bytes, no
// dimensions, type and offset.
constexpr uint64_t kLeastValueBytes = 8 + 4 + 1;
constexpr uint64_t kLeastTensorBytes = 8 + 4 + 4 + 8;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 30;

std::string DimsText(const Dims& dims) {
  return fmt::format("[{}]", fmt::join(dims, ", "));
}

bool HasControl(std::string_view text) {
  return std::ranges::any_of(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

class HeaderReader {
 public:
  explicit HeaderReader(const File& file)
      : file_(file), where_(file.path().string()), cursor_(file) {}

  Result<Header> Read() {
    PREPACK_TRY(ReadVersion());
    PREPACK_TRY_ASSIGN(const uint64_t tensors, ReadCount("tensors", kLeastTensorBytes));
    PREPACK_TRY_ASSIGN(const uint64_t values, ReadCount("metadata entries", kLeastValueBytes));
    for (uint64_t i = 0; i < values; ++i) PREPACK_TRY(ReadEntry(i));
    PREPACK_TRY(ReadAlignment());
    for (uint64_t i = 0; i < tensors; ++i) PREPACK_TRY(ReadTensor(i));
    PREPACK_TRY(PlaceTensors());
    return std::move(header_);
  }

 private:
  Status ReadVersion() {
    if (file_.size() < kMagic.size()) return NoMagic("a shorter file");
    PREPACK_TRY_ASSIGN(const std::string magic, cursor_.Text(where_, kMagic.size()));
    if (magic != kMagic) return NoMagic(Printable(magic));
    PREPACK_TRY_ASSIGN(const uint64_t version, cursor_.Uint(where_ + ": version", 4));
    header_.version = static_cast<uint32_t>(version);
    // A number of another byte order is large: its low bytes are zero.
    if (version != 0 && (version & 0xFFFFU) == 0) {
      return Unsupported(where_, "the file is big-endian")
          .Found(fmt::format("version {:#x}", version))
          .Expected("little-endian numbers")
          .Hint("Convert it with gguf-convert-endian of the Python package gguf");
    }
    if (version < kOldestVersion || version > kNewestVersion) {
      return Unsupported(where_ + ": version", "this version of GGUF is not supported")
          .Found(fmt::format("{}", version))
          .Expected(fmt::format("{} or {}", kOldestVersion, kNewestVersion))
          .Hint(version < kOldestVersion ? "Convert the model again with a llama.cpp of today"
                                         : "Is there a newer prepack?");
    }
    return {};
  }

  Status NoMagic(std::string_view found) const {
    return Malformed(where_, "the file is not a GGUF file")
        .Found(found)
        .Expected("GGUF as its first bytes")
        .Hint("Is the download complete, and not a Git LFS pointer?");
  }

  Result<uint64_t> ReadCount(std::string_view what, uint64_t least_bytes) {
    const std::string where = fmt::format("{}: number of {}", where_, what);
    PREPACK_TRY_ASSIGN(const uint64_t count, cursor_.Uint(where, 8));
    if (count > cursor_.left() / least_bytes) {
      return Malformed(where, "the file is too short for so many")
          .Found(fmt::format("{}", count))
          .Expected(fmt::format("at most {} in the {} that follow", cursor_.left() / least_bytes,
                                Plural(cursor_.left(), "byte")))
          .Hint("Is the download complete?");
    }
    return count;
  }

  Status ReadEntry(uint64_t index) {
    Value value;
    const std::string entry = fmt::format("{}: metadata entry {}", where_, index);
    PREPACK_TRY_ASSIGN(value.key, ReadName(entry, "key", kMaxKeyBytes));
    const std::string where = KeyWhere(value.key);
    if (!keys_.insert(value.key).second) return Malformed(where, "the key is there twice");
    PREPACK_TRY_ASSIGN(value.type, ReadType(where));
    if (value.type == ValueType::kArray) {
      PREPACK_TRY(ReadArray(where, value));
    } else if (value.type == ValueType::kString) {
      PREPACK_TRY_ASSIGN(value.count, cursor_.Length(where));
      value.offset = cursor_.offset();
      PREPACK_TRY(cursor_.Skip(where, value.count));
    } else {
      value.offset = cursor_.offset();
      PREPACK_TRY_ASSIGN(value.bits, cursor_.Uint(where, ScalarBytes(value.type)));
      PREPACK_TRY(CheckBool(where, value));
    }
    value.bytes = cursor_.offset() - value.offset;
    header_.values.push_back(std::move(value));
    return {};
  }

  static Status CheckBool(std::string_view where, const Value& value) {
    if (value.type != ValueType::kBool || value.bits <= 1) return {};
    return Malformed(where, "a boolean is neither 0 nor 1").Found(fmt::format("{}", value.bits));
  }

  Result<std::string> ReadName(const std::string& where, std::string_view what, uint64_t most) {
    PREPACK_TRY_ASSIGN(const uint64_t length, cursor_.Length(where));
    if (length > most) {
      return Malformed(where, fmt::format("the {} is too long", what))
          .Found(Plural(length, "byte"))
          .Expected(fmt::format("at most {}", most));
    }
    PREPACK_TRY_ASSIGN(std::string name, cursor_.Text(where, length));
    if (HasControl(name)) {
      return Malformed(where, fmt::format("the {} contains a control character", what))
          .Found(Printable(name));
    }
    return name;
  }

  Result<ValueType> ReadType(const std::string& where) {
    PREPACK_TRY_ASSIGN(const uint64_t type, cursor_.Uint(where, 4));
    if (type < kValueTypeNames.size()) return static_cast<ValueType>(type);
    return Malformed(where, "unknown type of value")
        .Found(fmt::format("{}", type))
        .Expected("0 to 12")
        .Hint("The file is damaged, or of a newer version of GGUF");
  }

  Status ReadArray(const std::string& where, Value& value) {
    PREPACK_TRY_ASSIGN(value.element, ReadType(where));
    if (value.element == ValueType::kArray) {
      return Unsupported(where, "an array of arrays")
          .Expected("an array of numbers, booleans or strings")
          .Hint("No version of llama.cpp reads one either");
    }
    PREPACK_TRY_ASSIGN(value.count, cursor_.Uint(where, 8));
    const bool texts = value.element == ValueType::kString;
    const uint64_t least = texts ? 8 : ScalarBytes(value.element);
    if (value.count > cursor_.left() / least) {
      return Malformed(where, "the array is longer than the file")
          .Found(fmt::format("{} elements of {}", value.count, ValueTypeName(value.element)))
          .Expected(fmt::format("at most {}", cursor_.left() / least))
          .Hint("Is the download complete?");
    }
    value.offset = cursor_.offset();
    if (!texts) return cursor_.Skip(where, value.count * least);
    for (uint64_t i = 0; i < value.count; ++i) {
      PREPACK_TRY_ASSIGN(const uint64_t length, cursor_.Length(where));
      PREPACK_TRY(cursor_.Skip(where, length));
    }
    return {};
  }

  Status ReadAlignment() {
    header_.alignment = kDefaultAlignment;
    const Value* value = header_.Find(kAlignment);
    if (value == nullptr) return {};
    if (value->type != ValueType::kUint32 || !std::has_single_bit(value->bits) ||
        value->bits > kMaxAlignment) {
      const bool number = ScalarBytes(value->type) != 0;
      return Malformed(KeyWhere(kAlignment), "not a valid alignment")
          .Found(number ? fmt::format("{} of {}", NumberText(value->type, value->bits),
                                      ValueTypeName(value->type))
                        : std::string(ValueTypeName(value->type)))
          .Expected(fmt::format("a power of two up to {}, as UINT32", kMaxAlignment));
    }
    header_.alignment = value->bits;
    return {};
  }

  Status ReadTensor(uint64_t index) {
    Tensor tensor;
    const std::string entry = fmt::format("{}: tensor {} of the list", where_, index);
    PREPACK_TRY_ASSIGN(tensor.name, ReadName(entry, "name", kMaxTensorNameBytes));
    const std::string where = TensorWhere(tensor.name);
    PREPACK_TRY_ASSIGN(const uint64_t rank, cursor_.Uint(where, 4));
    if (rank > kMaxDims) {
      return Malformed(where + ": shape", "too many dimensions")
          .Found(fmt::format("{}", rank))
          .Expected(fmt::format("at most {}", kMaxDims));
    }
    for (uint64_t i = 0; i < rank; ++i) {
      PREPACK_TRY_ASSIGN(const uint64_t dim, cursor_.Uint(where, 8));
      tensor.dims.push_back(dim);
    }
    PREPACK_TRY_ASSIGN(const uint64_t number, cursor_.Uint(where, 4));
    const GgmlTypeInfo* info = FindGgmlType(static_cast<uint32_t>(number));
    if (info == nullptr) {
      return Unsupported(where + ": type", "no type of ggml that prepack knows has this number")
          .Found(fmt::format("{}", number))
          .Hint("The file is damaged, made for a fork of llama.cpp, or newer than this prepack");
    }
    tensor.type = info->type;
    PREPACK_TRY_ASSIGN(tensor.bytes, SizeOf(where, *info, tensor.dims));
    PREPACK_TRY_ASSIGN(tensor.offset, cursor_.Uint(where, 8));
    header_.tensors.push_back(std::move(tensor));
    return {};
  }

  static Result<uint64_t> SizeOf(const std::string& where, const GgmlTypeInfo& info,
                                 const Dims& dims) {
    const uint64_t row = dims.empty() ? 1 : dims.front();
    if (row % info.block != 0) {
      return Malformed(where + ": shape", "the first dimension is no multiple of the block")
          .Found(fmt::format("{} {}", info.name, DimsText(dims)))
          .Expected(fmt::format("a multiple of {}", info.block));
    }
    if (const std::optional<uint64_t> bytes = BytesOf(info.type, dims)) return *bytes;
    return Malformed(where + ": shape", "the size overflows 64 bits")
        .Found(fmt::format("{} {}", info.name, DimsText(dims)));
  }

  // Offsets count from the start of the data, and tensors follow one another, each at a multiple of
  // the alignment: ggml takes no other file.
  Status PlaceTensors() {
    const std::optional<uint64_t> start = CheckedAlignUp(cursor_.offset(), header_.alignment);
    // A file without tensors may end with its metadata.
    const uint64_t data = std::min(start.value_or(file_.size()), file_.size());
    header_.data_start = data;
    uint64_t next = 0;
    std::unordered_set<std::string_view> names;
    for (size_t i = 0; i < header_.tensors.size(); ++i) {
      Tensor& tensor = header_.tensors[i];
      if (!names.insert(tensor.name).second) {
        return Malformed(TensorWhere(tensor.name), "the file has this name twice");
      }
      PREPACK_TRY(CheckOffset(i, next));
      const std::optional<uint64_t> end = CheckedAdd(tensor.offset, tensor.bytes);
      if (!end || *end > file_.size() - data) return Truncated(tensor, data);
      next = CheckedAlignUp(*end, header_.alignment).value_or(*end);
      tensor.offset += data;
    }
    header_.unused_bytes = file_.size() - data - std::min(next, file_.size() - data);
    return {};
  }

  Status CheckOffset(size_t index, uint64_t next) const {
    const Tensor& tensor = header_.tensors[index];
    if (tensor.offset == next) return {};
    std::string what = fmt::format("a gap of {} before it", Plural(tensor.offset - next, "byte"));
    if (tensor.offset < next) {
      what = fmt::format("overlaps tensor {}", header_.tensors[index - 1].name);
    }
    if (tensor.offset % header_.alignment != 0) {
      what = fmt::format("not a multiple of the alignment {}", header_.alignment);
    }
    return Malformed(TensorWhere(tensor.name) + ": offset", what)
        .Found(fmt::format("{}", tensor.offset))
        .Expected(fmt::format("{}", next))
        .Hint("The file is damaged: llama.cpp refuses it, too");
  }

  Status Truncated(const Tensor& tensor, uint64_t data) const {
    return Malformed(TensorWhere(tensor.name), "the file ends before the tensor does")
        .Found(fmt::format("{} of data", Plural(file_.size() - data, "byte")))
        .Expected(fmt::format("{} from {} on", Plural(tensor.bytes, "byte"), tensor.offset))
        .Hint("Is the download complete?");
  }

  std::string KeyWhere(std::string_view key) const {
    return fmt::format("{}: key {}", where_, Printable(key));
  }
  std::string TensorWhere(std::string_view name) const {
    return fmt::format("{}: tensor {}", where_, name);
  }

  const File& file_;
  std::string where_;
  Cursor cursor_;
  Header header_;
  std::unordered_set<std::string> keys_;
};

// Two's complement of `bytes` bytes.
int64_t SignedOf(uint64_t bits, uint32_t bytes) {
  const unsigned shift = 64 - 8 * bytes;
  return static_cast<int64_t>(bits << shift) >> shift;
}

bool IsSigned(ValueType type) {
  return type == ValueType::kInt8 || type == ValueType::kInt16 || type == ValueType::kInt32 ||
         type == ValueType::kInt64;
}

bool IsFloat(ValueType type) {
  return type == ValueType::kFloat32 || type == ValueType::kFloat64;
}

}  // namespace

std::string SplitName(std::string_view stem, uint64_t no, uint64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, no + 1, count);
}

std::string_view ValueTypeName(ValueType type) {
  return kValueTypeNames[static_cast<size_t>(type)];
}

uint32_t ScalarBytes(ValueType type) {
  return kScalarBytes[static_cast<size_t>(type)];
}

const Value* Header::Find(std::string_view key) const {
  const auto it = std::ranges::find(values, key, &Value::key);
  return it == values.end() ? nullptr : &*it;
}

Result<Header> ReadHeader(const File& file) {
  return HeaderReader(file).Read();
}

double NumberOf(ValueType type, uint64_t bits) {
  if (type == ValueType::kFloat32) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  if (type == ValueType::kFloat64) return std::bit_cast<double>(bits);
  if (IsSigned(type)) return static_cast<double>(SignedOf(bits, ScalarBytes(type)));
  return static_cast<double>(bits);
}

std::string NumberText(ValueType type, uint64_t bits) {
  if (type == ValueType::kBool) return bits != 0 ? "true" : "false";
  if (type == ValueType::kFloat32) {
    return fmt::format("{}", std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  if (IsFloat(type)) return fmt::format("{}", NumberOf(type, bits));
  if (IsSigned(type)) return fmt::format("{}", SignedOf(bits, ScalarBytes(type)));
  return fmt::format("{}", bits);
}

std::optional<uint64_t> UintOf(const Value& value) {
  if (ScalarBytes(value.type) == 0 || value.type == ValueType::kBool || IsFloat(value.type)) {
    return std::nullopt;
  }
  if (!IsSigned(value.type)) return value.bits;
  const int64_t number = SignedOf(value.bits, ScalarBytes(value.type));
  return number < 0 ? std::nullopt : std::optional(static_cast<uint64_t>(number));
}

}  // namespace prepack::gguf
