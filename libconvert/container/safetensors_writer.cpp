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
#include "container/json_strict.h"
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
  std::string text(kLengthBytes, '\0');
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

}  // namespace

Result<SafetensorsPlan> PlanSafetensors(std::vector<TensorInfo> tensors,
                                        std::map<std::string, std::string> metadata) {
  Status status = AssignOffsets(tensors);
  if (!status.ok()) return status;
  const uint64_t data_bytes = tensors.empty() ? 0 : tensors.back().end;
  SafetensorsHeader header;
  header.tensors = std::move(tensors);
  header.metadata = std::move(metadata);

  SafetensorsPlan plan;
  try {
    plan.header_bytes = HeaderText(header);
  } catch (const Json::type_error&) {
    return Malformed(kWhere, "the name of a tensor or a metadata text is not valid UTF-8");
  }
  header = {};  // what follows makes the same again: there may be room for one only
  FinishHeader(plan.header_bytes);
  const std::string_view json = std::string_view(plan.header_bytes).substr(kLengthBytes);
  // Whatever we write, we must be able to read: this refuses duplicate and impossible names.
  Result<SafetensorsHeader> read = ParseSafetensorsHeader(json, data_bytes, kWhere);
  if (!read.ok()) return read.status();
  if (json.size() > kMaxHeaderBytes) {
    return Unsupported(kWhere, "the header is longer than the format allows")
        .Found(fmt::format("{} bytes", json.size()))
        .Expected(fmt::format("at most {}", kMaxHeaderBytes))
        .Hint("Spread the tensors over more files");
  }
  plan.header = *std::move(read);
  const std::optional<uint64_t> file_bytes = CheckedAdd(plan.header.data_start, data_bytes);
  if (!file_bytes) return Unsupported(kWhere, "the size of the file overflows 64 bits");
  plan.file_bytes = *file_bytes;
  return plan;
}

SafetensorsWriter::SafetensorsWriter(File file, SafetensorsPlan plan)
    : file_(std::move(file)),
      plan_(std::move(plan)),
      written_(std::make_unique<std::atomic<uint64_t>>(0)),
      turn_(std::make_unique<std::mutex>()) {}

Result<SafetensorsWriter> SafetensorsWriter::Create(const std::filesystem::path& path,
                                                    SafetensorsPlan plan) {
  Result<File> file = File::CreateNew(path);
  if (!file.ok()) return file.status();
  Status status = file->Allocate(plan.file_bytes);
  if (!status.ok()) return status;
  status = file->WriteAt(0, std::as_bytes(std::span(plan.header_bytes)));
  if (!status.ok()) return status;
  return SafetensorsWriter(*std::move(file), std::move(plan));
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
  std::string header(plan.header_bytes.size(), '\0');
  Status status = file->ReadAt(0, std::as_writable_bytes(std::span(header)));
  if (!status.ok()) return status;
  if (header != plan.header_bytes) return std::optional<SafetensorsWriter>();
  return std::optional(SafetensorsWriter(*std::move(file), plan));
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
