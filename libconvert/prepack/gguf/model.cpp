#include "prepack/gguf/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "prepack/base/text.h"
#include "prepack/gguf/cursor.h"
#include "prepack/gguf/keys.h"

namespace prepack::gguf {
namespace {

constexpr std::string_view kEnding = ".gguf";
constexpr uint64_t kMostSplits = 99'999;  // five digits

// The name of a file without "-00001-of-00003.gguf"; nothing if it does not end so.
std::optional<std::string> StemOf(const std::filesystem::path& path, uint64_t count) {
  const std::string name = path.filename().string();
  const std::string ending = SplitName("", 0, count);
  if (name.size() <= ending.size()) return std::nullopt;
  const std::string stem = name.substr(0, name.size() - ending.size());
  const std::optional<uint64_t> number = ParseUint(name.substr(stem.size() + 1, 5));
  if (!number || *number == 0 || name != SplitName(stem, *number - 1, count)) return std::nullopt;
  return stem;
}

Status WrongSplit(const File& file, std::string_view key, const Value* value, uint64_t expected) {
  std::string found = "nothing";
  if (value != nullptr) {
    const bool number = ScalarBytes(value->type) != 0;
    found = number ? NumberText(value->type, value->bits) : std::string(ValueTypeName(value->type));
  }
  return Malformed(fmt::format("{}: key {}", file.path().string(), key),
                   "the file does not belong to the others of the split model")
      .Found(found)
      .Expected(fmt::format("{}", expected))
      .Hint("Download all files of the model again; do not rename them");
}

Status CheckSplitKey(const File& file, const Header& header, std::string_view key,
                     uint64_t expected) {
  const Value* value = header.Find(key);
  if (value != nullptr && UintOf(*value) == expected) return {};
  return WrongSplit(file, key, value, expected);
}

}  // namespace

bool IsGguf(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return false;
  if (path.extension() == kEnding) return true;
  const Result<File> file = File::OpenWeights(path);
  if (!file.ok() || file->size() < kMagic.size()) return false;
  const Result<std::string> magic = Cursor(*file).Text("", kMagic.size());
  return magic.ok() && *magic == kMagic;
}

Result<Model> Model::Open(const std::filesystem::path& path) {
  Model model;
  model.path_ = path;
  PREPACK_TRY_ASSIGN(File file, File::OpenWeights(path));
  PREPACK_TRY_ASSIGN(Header header, ReadHeader(file));
  const Value* splits = header.Find(kSplitCount);
  const std::optional<uint64_t> count = splits == nullptr ? 1 : UintOf(*splits);
  if (!count || *count > kMostSplits) {
    return Malformed(fmt::format("{}: key {}", path.string(), kSplitCount), "not a number of files")
        .Found(count ? fmt::format("{}", *count) : std::string(ValueTypeName(splits->type)))
        .Expected(fmt::format("an integer up to {}", kMostSplits));
  }
  if (*count > 1) {
    PREPACK_TRY(model.OpenSplit(*count));
  } else {
    model.Add(std::move(file), std::move(header));
  }
  PREPACK_TRY(model.SortTensors());
  PREPACK_TRY(model.ReadArchitecture());
  return model;
}

Status Model::OpenSplit(uint64_t count) {
  const std::optional<std::string> stem = StemOf(path_, count);
  if (!stem) {
    return Malformed(path_.string(), "the name of a file of a split model does not say which it is")
        .Found(path_.filename().string())
        .Expected(SplitName("NAME", 0, count))
        .Hint("Give the file back the name that it was downloaded under");
  }
  for (uint64_t no = 0; no < count; ++no) {
    const std::filesystem::path path = path_.parent_path() / SplitName(*stem, no, count);
    PREPACK_TRY_ASSIGN(File file, File::OpenWeights(path));
    PREPACK_TRY_ASSIGN(Header header, ReadHeader(file));
    PREPACK_TRY(CheckSplitKey(file, header, kSplitNo, no));
    PREPACK_TRY(CheckSplitKey(file, header, kSplitCount, count));
    Add(std::move(file), std::move(header));
  }
  const Value* tensors = FindValue(kSplitTensors);
  if (tensors != nullptr && UintOf(*tensors) == tensors_.size()) return {};
  return WrongSplit(files_.front().file, kSplitTensors, tensors, tensors_.size());
}

void Model::Add(File file, Header header) {
  const size_t index = files_.size();
  if (index == 0) {
    version_ = header.version;
    alignment_ = header.alignment;
    values_ = std::move(header.values);
  }
  std::string name = file.path().filename().string();
  files_.push_back({.name = std::move(name),
                    .file = std::move(file),
                    .tensors = header.tensors.size(),
                    .data_start = header.data_start,
                    .unused_bytes = header.unused_bytes});
  for (Tensor& tensor : header.tensors) {
    tensor.file = index;
    tensors_.push_back(std::move(tensor));
  }
}

Status Model::SortTensors() {
  std::ranges::stable_sort(tensors_, {}, &Tensor::name);
  const auto twin = std::ranges::adjacent_find(tensors_, {}, &Tensor::name);
  if (twin == tensors_.end()) return {};
  return Malformed(Where(*twin), "two files of the split model have this tensor")
      .Found(files_[std::next(twin)->file].name)
      .Hint("Download all files of the model again");
}

Status Model::ReadArchitecture() {
  constexpr uint64_t kLongest = 256;
  const Value* value = FindValue(kArchitecture);
  if (value == nullptr) return {};
  if (value->type != ValueType::kString || value->count > kLongest) {
    return Malformed(Where(*value), "not the name of an architecture")
        .Found(value->type == ValueType::kString ? Plural(value->count, "byte")
                                                 : std::string(ValueTypeName(value->type)))
        .Expected(fmt::format("a STRING of at most {} bytes", kLongest));
  }
  PREPACK_TRY_ASSIGN(architecture_, ReadText(*value, kLongest));
  return {};
}

uint64_t Model::total_bytes() const {
  uint64_t bytes = 0;
  for (const Tensor& tensor : tensors_) bytes += tensor.bytes;
  return bytes;
}

const Value* Model::FindValue(std::string_view key) const {
  const auto it = std::ranges::find(values_, key, &Value::key);
  return it == values_.end() ? nullptr : &*it;
}

const Tensor* Model::FindTensor(std::string_view name) const {
  const auto it = std::ranges::lower_bound(tensors_, name, {}, &Tensor::name);
  return it == tensors_.end() || it->name != name ? nullptr : &*it;
}

std::optional<uint64_t> Model::ArchitectureUint(std::string_view key) const {
  const Value* value = FindValue(architecture_ + std::string(key));
  return value == nullptr ? std::nullopt : UintOf(*value);
}

std::string Model::Where(const Tensor& tensor) const {
  return fmt::format("{}: tensor {}", files_[tensor.file].name, tensor.name);
}

std::string Model::Where(const Value& value) const {
  return fmt::format("{}: key {}", files_.front().name, Printable(value.key));
}

Result<std::string> Model::ReadText(const Value& value, uint64_t most) const {
  Cursor cursor(files_.front().file, value.offset);
  return cursor.Text(Where(value), std::min(value.count, most));
}

Result<std::vector<std::string>> Model::ReadTexts(const Value& value, uint64_t most,
                                                  uint64_t most_bytes) const {
  Cursor cursor(files_.front().file, value.offset);
  std::vector<std::string> texts;
  for (uint64_t i = 0; i < std::min(value.count, most); ++i) {
    PREPACK_TRY_ASSIGN(const uint64_t length, cursor.Length(Where(value)));
    PREPACK_TRY_ASSIGN(std::string text, cursor.Text(Where(value), std::min(length, most_bytes)));
    PREPACK_TRY(cursor.Skip(Where(value), length - text.size()));
    texts.push_back(std::move(text));
  }
  return texts;
}

Result<std::vector<uint64_t>> Model::ReadNumbers(const Value& value, uint64_t most) const {
  Cursor cursor(files_.front().file, value.offset);
  std::vector<uint64_t> numbers;
  for (uint64_t i = 0; i < std::min(value.count, most); ++i) {
    PREPACK_TRY_ASSIGN(const uint64_t bits, cursor.Uint(Where(value), ScalarBytes(value.element)));
    numbers.push_back(bits);
  }
  return numbers;
}

Status Model::Visit(const Tensor& tensor, uint64_t offset, uint64_t bytes, ByteVisitor work) const {
  return files_[tensor.file].file.VisitAt(tensor.offset + offset, bytes, work);
}

}  // namespace prepack::gguf
