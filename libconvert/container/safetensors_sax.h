#ifndef PREPACK_CONTAINER_SAFETENSORS_SAX_H_
#define PREPACK_CONTAINER_SAFETENSORS_SAX_H_

// The JSON of a safetensors header, straight to TensorInfo: a header of 100 MB never becomes a
// DOM. Checks what can be seen one entry at a time: types, known dtypes, ranks, names, missing and
// duplicate fields. What needs the whole (duplicate names, sizes, offsets) is checked by
// ParseSafetensorsHeader.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "container/json_sax.h"
#include "container/safetensors.h"

namespace prepack {

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

#endif  // PREPACK_CONTAINER_SAFETENSORS_SAX_H_
