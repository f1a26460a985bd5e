#include "container/safetensors_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/checked.h"
#include "container/json.h"
#include "container/tensor_names.h"
#include "io/posix.h"

namespace prepack {
namespace {

constexpr std::string_view kWhere = "output file";
constexpr uint64_t kLengthBytes = 8;

// The place of a tensor in the file: 0 for those that keep the next one aligned, then the rest by
// what their size is a multiple of. With every size before it a multiple of 2^i, a tensor of such a
// size starts at a multiple of 2^i, and 2^i is at least its element.
unsigned Rank(uint64_t bytes) {
  if (bytes % kTensorAlignment == 0) return 0;
  return std::numeric_limits<unsigned>::max() - static_cast<unsigned>(std::countr_zero(bytes));
}

Status AssignOffsets(std::vector<TensorInfo>& tensors) {
  for (TensorInfo& tensor : tensors) {
    const std::optional<uint64_t> bytes = TensorBytes(tensor.dtype, tensor.shape);
    if (!bytes) {
      return Malformed(fmt::format("{}: tensor {}", kWhere, tensor.name),
                       "the size overflows, or does not end on a byte")
          .Found(fmt::format("{} [{}]", DTypeName(tensor.dtype), fmt::join(tensor.shape, ", ")));
    }
    tensor.begin = 0;
    tensor.end = *bytes;
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return Rank(a.bytes()) < Rank(b.bytes());
  });
  uint64_t next = 0;
  for (TensorInfo& tensor : tensors) {
    const std::optional<uint64_t> end = CheckedAdd(next, tensor.bytes());
    if (!end) return Unsupported(kWhere, "the size of all tensors overflows 64 bits");
    tensor.begin = std::exchange(next, *end);
    tensor.end = *end;
  }
  return {};
}

// The JSON behind room for its length. Throws Json::type_error for text that is not UTF-8.
std::string HeaderText(const SafetensorsHeader& header) {
  constexpr size_t kEntryBytes = 128;  // about as long as one is
  std::string text;
  text.reserve(kLengthBytes + kEntryBytes * (header.tensors.size() + 1));
  text.resize(kLengthBytes);
  text += '{';
  const auto begin_member = [&text](const std::string& name) {
    if (text.size() > kLengthBytes + 1) text += ',';
    text += Json(name).dump();
    text += ':';
  };
  if (!header.metadata.empty()) {
    begin_member("__metadata__");
    text += Json(header.metadata).dump();
  }
  for (const TensorInfo& tensor : header.tensors) {
    begin_member(tensor.name);
    fmt::format_to(std::back_inserter(text),
                   R"({{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                   DTypeName(tensor.dtype), fmt::join(tensor.shape, ","), tensor.begin, tensor.end);
  }
  text += '}';
  return text;
}

// Pads the text up to where data may begin, and puts the length in front.
void FinishHeader(std::string& text) {
  text.resize(static_cast<size_t>(*CheckedAlignUp(text.size(), kDataAlignment)), ' ');
  const uint64_t length = text.size() - kLengthBytes;
  for (size_t i = 0; i < kLengthBytes; ++i) text[i] = static_cast<char>(length >> (8 * i) & 0xFF);
}

Status CheckReadable(const SafetensorsHeader& header, uint64_t data_bytes) {
  const std::string text = HeaderText(header);
  return ParseSafetensorsHeader(std::string_view(text).substr(kLengthBytes), data_bytes, kWhere)
      .status();
}

// Whatever we write, we must be able to read: this refuses impossible names and shapes. Tensor by
// tensor, because a second header of all of them would take as much memory as the first.
Status CheckPartsReadable(const SafetensorsHeader& header) {
  SafetensorsHeader only;
  only.metadata = header.metadata;
  Status status = CheckReadable(only, 0);
  only.metadata.clear();
  only.tensors.resize(1);
  for (const TensorInfo& tensor : header.tensors) {
    if (!status.ok()) break;
    only.tensors.front() = {tensor.name, tensor.dtype, tensor.shape, 0, tensor.bytes()};
    status = CheckReadable(only, tensor.bytes());
  }
  return status;
}

}  // namespace

std::string SafetensorsPlan::HeaderBytes() const {
  std::string text = HeaderText(header);
  FinishHeader(text);
  return text;
}

Result<SafetensorsPlan> PlanSafetensors(std::vector<TensorInfo> tensors,
                                        std::map<std::string, std::string> metadata) {
  Status status = AssignOffsets(tensors);
  if (!status.ok()) return status;
  const uint64_t data_bytes = tensors.empty() ? 0 : tensors.back().end;
  SafetensorsPlan plan;
  plan.header.tensors = std::move(tensors);
  plan.header.metadata = std::move(metadata);
  try {
    status = CheckPartsReadable(plan.header);
    if (!status.ok()) return status;
    plan.header.data_start = plan.HeaderBytes().size();
  } catch (const Json::type_error&) {
    return Malformed(kWhere, "the name of a tensor or a metadata text is not valid UTF-8");
  }
  status = CheckNamesDiffer(plan.header.tensors, kWhere);
  if (!status.ok()) return status;
  const uint64_t json_bytes = plan.header.data_start - kLengthBytes;
  if (json_bytes > kMaxHeaderBytes) {
    return Unsupported(kWhere, "the header is longer than the format allows")
        .Found(fmt::format("{} bytes", json_bytes))
        .Expected(fmt::format("at most {}", kMaxHeaderBytes))
        .Hint("Spread the tensors over more files");
  }
  const std::optional<uint64_t> file_bytes = CheckedAdd(plan.header.data_start, data_bytes);
  if (!file_bytes) return Unsupported(kWhere, "the size of the file overflows 64 bits");
  plan.file_bytes = *file_bytes;
  return plan;
}

SafetensorsWriter::SafetensorsWriter(File file, SafetensorsPlan plan, const Hash128& header_hash)
    : file_(std::move(file)),
      plan_(std::move(plan)),
      header_hash_(header_hash),
      written_(std::make_unique<std::atomic<uint64_t>>(0)),
      turn_(std::make_unique<std::mutex>()) {}

Result<SafetensorsWriter> SafetensorsWriter::Create(const std::filesystem::path& path,
                                                    SafetensorsPlan plan) {
  Result<File> file = File::CreateNew(path);
  if (!file.ok()) return file.status();
  Status status = file->Allocate(plan.file_bytes);
  if (!status.ok()) return status;
  const std::string header = plan.HeaderBytes();
  status = file->WriteAt(0, std::as_bytes(std::span(header)));
  if (!status.ok()) return status;
  return SafetensorsWriter(*std::move(file), std::move(plan), Xxh3(header));
}

Result<SafetensorsWriter> SafetensorsWriter::Replace(const std::filesystem::path& path,
                                                     SafetensorsPlan plan) {
  const int result = posix::RemoveTree(path);
  if (result < 0) return SystemError(path.string(), "cannot remove it", -result);
  return Create(path, std::move(plan));
}

Result<std::optional<SafetensorsWriter>> SafetensorsWriter::Reopen(
    const std::filesystem::path& path, const SafetensorsPlan& plan) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(path, error))) {
    return std::optional<SafetensorsWriter>();
  }
  Result<File> file = File::OpenForUpdate(path);
  if (!file.ok()) return file.status();
  if (file->size() != plan.file_bytes) return std::optional<SafetensorsWriter>();
  const std::string expected = plan.HeaderBytes();
  std::string header(expected.size(), '\0');
  Status status = file->ReadAt(0, std::as_writable_bytes(std::span(header)));
  if (!status.ok()) return status;
  if (header != expected) return std::optional<SafetensorsWriter>();
  return std::optional(SafetensorsWriter(*std::move(file), plan, Xxh3(expected)));
}

Status SafetensorsWriter::Write(size_t index, uint64_t offset, std::span<const std::byte> bytes) {
  if (index >= plan_.header.tensors.size()) {
    return Usage(file_.path().string(), "there is no such tensor to write")
        .Found(fmt::format("number {}", index))
        .Expected(fmt::format("below {}", plan_.header.tensors.size()));
  }
  const TensorInfo& tensor = plan_.header.tensors[index];
  if (offset > tensor.bytes() || bytes.size() > tensor.bytes() - offset) {
    return Usage(fmt::format("{}: tensor {}", file_.path().string(), tensor.name),
                 "write outside the tensor")
        .Found(fmt::format("{} bytes at {}", bytes.size(), offset))
        .Expected(fmt::format("at most {} bytes", tensor.bytes()));
  }
  Status status = file_.WriteAt(plan_.header.data_start + tensor.begin + offset, bytes);
  if (!flushes_early_) return status;
  const uint64_t before = written_->fetch_add(bytes.size(), std::memory_order_relaxed);
  if (before / kWritebackBytes != (before + bytes.size()) / kWritebackBytes) {
    file_.StartWriteback();
  }
  return status;
}

Status SafetensorsWriter::Sync() {
  return file_.Sync();
}

}  // namespace prepack
