#pragma once

// The dimensions of a tensor. Models have hundreds of thousands of tensors, nearly all with one or
// two dimensions: these need no separate allocation.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "prepack/base/dtype.h"
#include "prepack/base/status.h"
#include "prepack/container/json.h"
#include "prepack/io/file.h"

namespace prepack {

class TensorShape {
 public:
  TensorShape() = default;
  explicit TensorShape(std::span<const uint64_t> dims) : size_(dims.size()) {
    if (size_ > kInside) inside_[0] = std::bit_cast<uint64_t>(new uint64_t[size_]);
    std::ranges::copy(dims, data());
  }
  // Implicit, as it is where a vector stands for a shape.
  TensorShape(const std::vector<uint64_t>& dims) : TensorShape(std::span(dims)) {}
  TensorShape(std::initializer_list<uint64_t> dims) : TensorShape(std::span(dims)) {}
  TensorShape(const TensorShape& other) : TensorShape(std::span(other.data(), other.size())) {}
  TensorShape(TensorShape&& other) noexcept { Swap(other); }
  TensorShape& operator=(TensorShape other) noexcept {
    Swap(other);
    return *this;
  }
  ~TensorShape() {
    if (size_ > kInside) delete[] Outside();
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const uint64_t* data() const { return size_ > kInside ? Outside() : inside_.data(); }
  const uint64_t* begin() const { return data(); }
  const uint64_t* end() const { return data() + size_; }
  // `index` must be below size().
  uint64_t operator[](size_t index) const { return data()[index]; }
  // The shape must not be empty.
  uint64_t back() const { return data()[size_ - 1]; }

  friend bool operator==(const TensorShape& a, const TensorShape& b) {
    return std::ranges::equal(a, b);
  }

 private:
  static constexpr size_t kInside = 2;

  uint64_t* data() { return size_ > kInside ? Outside() : inside_.data(); }
  // inside_[0] holds the address of the dimensions if there are more than kInside.
  uint64_t* Outside() const { return std::bit_cast<uint64_t*>(inside_[0]); }
  void Swap(TensorShape& other) noexcept {
    std::swap(size_, other.size_);
    std::swap(inside_, other.inside_);
  }

  size_t size_ = 0;
  std::array<uint64_t, kInside> inside_ = {};
};

// The safetensors container (mirrors safetensors 0.8, safetensors/src/tensor.rs and README.md).
//
//     offset 0        u64, little-endian: H, the length of the header
//     offset 8        H bytes of JSON, padded with trailing spaces:
//                       {"__metadata__": {"key": "text", …},
//                        "NAME": {"dtype": "I32", "shape": [4, 8], "data_offsets": [begin, end]},
//                        …}
//     offset 8 + H    data; begin and end count from here
//
// Goals: nothing in the file is trusted; every error names file, tensor, field, what was found and
// what was expected. Sorted by offset, the tensors must start at 0, touch exactly, and end exactly
// at the end of the file. Stricter than the library: duplicate tensor names are refused there only
// when they disagree, here always.
// Non-goals: loading tensors into memory. This header describes; bytes are read on request.

// One tensor as the header describes it.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kU8;
  TensorShape shape;
  uint64_t begin = 0;  // bytes from the start of the data
  uint64_t end = 0;

  uint64_t bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;              // ascending by begin, then by end
  std::map<std::string, std::string> metadata;  // __metadata__
  uint64_t data_start = 0;                      // bytes from the start of the file
};

inline constexpr uint64_t kHeaderLengthBytes = 8;  // in front of the header

// Limits of what is read, all far above what real files hold.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format itself
// So there are less than 2,000,000 tensors: the shortest entry of one has 51 bytes.
inline constexpr size_t kMaxTensorRank = 8;
inline constexpr size_t kMaxTensorNameBytes = 4096;

// Parses and checks the JSON of a header (without the 8 length bytes) for a file with
// `data_bytes` of data. `where` names the file.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, uint64_t data_bytes,
                                                 std::string_view where);
// Reads and checks the header of an open file.
Result<SafetensorsHeader> ReadSafetensorsHeader(const File& file);

// kMalformed when two tensors of a header have the same name. `where` names the file.
Status CheckNamesDiffer(std::span<const TensorInfo> tensors, std::string_view where);

// The JSON of a safetensors header, straight to TensorInfo: a header of 100 MB never becomes a
// DOM. Checks what can be seen one entry at a time: types, known dtypes, ranks, names, missing and
// duplicate fields. What needs the whole (duplicate names, sizes, offsets) is checked by
// ParseSafetensorsHeader.

class SafetensorsSax : public JsonSax {
 public:
  // { NAME: { extra: [ or { } ] }: fields that we do not know are skipped, but not at any depth.
  static constexpr size_t kMaxDepth = 4;

  // `file` is how errors name the file.
  explicit SafetensorsSax(std::string_view file) : JsonSax(kMaxDepth), file_(file) {}

  // In the order of the text; data_start is not set.
  SafetensorsHeader TakeHeader() { return std::move(header_); }

  bool null() override { return Scalar("null"); }
  bool boolean(bool value) override { return Scalar(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override;
  bool number_unsigned(number_unsigned_t value) override;
  bool number_float(number_float_t value, const std::string& text) override;
  bool string(std::string& value) override;
  bool start_object(size_t elements) override;
  bool key(std::string& name) override;
  bool end_object() override;
  bool start_array(size_t elements) override;
  bool end_array() override;

 private:
  // What the next value is.
  enum class Place : uint8_t {
    kHeader,
    kMetadata,      // the object __metadata__
    kMetadataText,  // a value in it
    kEntry,         // the object of a tensor
    kDType,
    kShape,
    kDim,
    kOffsets,
    kOffset,
    kExtra,  // a field that we do not know, or anything inside it
  };

  // A value that is right only where anything is.
  bool Scalar(std::string_view found);
  bool WrongType(std::string_view found);
  bool BadInteger(std::string_view found);
  bool BeginTensor(const std::string& name);
  bool BeginField(std::string_view name);
  bool EndTensor();
  bool Duplicate(std::string_view what, std::string_view name);
  std::string WhereNow() const;

  std::string file_;
  SafetensorsHeader header_;
  Place place_ = Place::kHeader;
  bool has_metadata_ = false;
  std::string metadata_key_;

  // The entry that is being read.
  TensorInfo tensor_;
  std::vector<uint64_t> dims_;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  std::vector<uint64_t> offsets_;
  // Unknown names of the entry, then those of each object open inside them.
  std::vector<std::set<std::string, std::less<>>> extra_names_;
};

}  // namespace prepack
