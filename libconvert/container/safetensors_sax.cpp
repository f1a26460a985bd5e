#include "container/safetensors_sax.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace prepack {
namespace {

constexpr std::string_view kMetadataName = "__metadata__";
// Containers around the fields of an entry: the header and the entry.
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
  return Fail(Malformed(WhereNow(), "not a number that a size can be")
                  .Found(found)
                  .Expected("an integer from 0 to 18446744073709551615"));
}

bool SafetensorsSax::number_integer(number_integer_t value) {
  // Only for numbers with a minus sign: others are unsigned to nlohmann.
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
      return Fail(Malformed(WhereNow(), "more than two numbers").Expected("begin and end"));
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
                    .Expected("begin and end"));
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
    return Fail(Malformed(WhereNow(), "control character in the name"));
  return true;
}

bool SafetensorsSax::BeginField(std::string_view name) {
  // Of the entry itself: an error in one field must not seem to be one of the field before it.
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
