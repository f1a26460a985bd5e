// Plans and writes safetensors files. The size is known before the first byte, so the space can be
// reserved and tensors can be written in any order.

#include "prepack/container/safetensors_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/base/status.h"
#include "prepack/container/json.h"
#include "prepack/container/safetensors.h"
#include "prepack/io/file.h"

namespace prepack {
namespace {

constexpr std::string_view kWhere = "output file";

// The rank of a tensor in the file: 0 for those that keep the next one aligned, then the rest by
// the power of two that divides their size. If every size before it is a multiple of 2^i, such a
// tensor starts at a multiple of 2^i, which is at least its element size.
unsigned Rank(uint64_t bytes) {
  if (bytes % kTensorAlignment == 0) return 0;
  return std::numeric_limits<unsigned>::max() - static_cast<unsigned>(std::countr_zero(bytes));
}

Status AssignOffsets(std::vector<TensorInfo>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    TensorInfo& tensor = tensors[i];
    const std::optional<uint64_t> bytes = TensorBytes(tensor.dtype, tensor.shape);
    if (!bytes) {
      return Malformed(fmt::format("{}: tensor {}", kWhere, tensor.name),
                       "the size overflows or is not a whole number of bytes")
          .Found(fmt::format("{} [{}]", DTypeName(tensor.dtype), fmt::join(tensor.shape, ", ")));
    }
    // For now, its index among the given tensors: a stable sort would need memory for half of them.
    tensor.begin = i;
    tensor.end = i + *bytes;
  }
  std::ranges::sort(tensors, {}, [](const TensorInfo& tensor) {
    return std::pair(Rank(tensor.bytes()), tensor.begin);
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

using TextVisitor = FunctionRef<Status(std::string_view text)>;

// Writes the JSON piece by piece: as a whole it would take as much memory as the entries. Throws
// Json::type_error for text that is not UTF-8.
Status VisitJson(const SafetensorsHeader& header, TextVisitor visit) {
  constexpr size_t kPieceBytes = 64ULL * 1024;
  std::string piece = "{";
  bool first = true;
  const auto begin_member = [&](const std::string& name) {
    if (!std::exchange(first, false)) piece += ',';
    piece += Json(name).dump();
    piece += ':';
  };
  if (!header.metadata.empty()) {
    begin_member("__metadata__");
    piece += Json(header.metadata).dump();
  }
  for (const TensorInfo& tensor : header.tensors) {
    begin_member(tensor.name);
    fmt::format_to(std::back_inserter(piece),
                   R"({{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                   DTypeName(tensor.dtype), fmt::join(tensor.shape, ","), tensor.begin, tensor.end);
    if (piece.size() < kPieceBytes) continue;
    PREPACK_TRY(visit(piece));
    piece.clear();
  }
  piece += '}';
  return visit(piece);
}

uint64_t JsonBytes(const SafetensorsHeader& header) {
  uint64_t bytes = 0;
  (void)VisitJson(header, [&](std::string_view text) {
    bytes += text.size();
    return Status();
  });
  return bytes;
}

std::string LengthBytes(uint64_t length) {
  std::string bytes(kHeaderLengthBytes, '\0');
  for (size_t i = 0; i < kHeaderLengthBytes; ++i)
    bytes[i] = static_cast<char>(length >> (8 * i) & 0xFF);
  return bytes;
}

Status CheckReadable(const SafetensorsHeader& header, uint64_t data_bytes) {
  std::string json;
  (void)VisitJson(header, [&](std::string_view text) {
    json += text;
    return Status();
  });
  return ParseSafetensorsHeader(json, data_bytes, kWhere).status();
}

// We must be able to read whatever we write, so this refuses impossible names and shapes. It goes
// tensor by tensor, because a second header would take as much memory as the first.
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

Status SafetensorsPlan::VisitHeader(HeaderVisitor visit) const {
  uint64_t offset = 0;
  const auto next = [&](std::string_view text) {
    const uint64_t at = std::exchange(offset, offset + text.size());
    return visit(at, text);
  };
  PREPACK_TRY(next(LengthBytes(header.data_start - kHeaderLengthBytes)));
  PREPACK_TRY(VisitJson(header, next));
  return next(std::string(header.data_start - offset, ' '));
}

Result<SafetensorsPlan> PlanSafetensors(std::vector<TensorInfo> tensors,
                                        std::map<std::string, std::string> metadata) {
  PREPACK_TRY(AssignOffsets(tensors));
  const uint64_t data_bytes = tensors.empty() ? 0 : tensors.back().end;
  SafetensorsPlan plan;
  plan.header.tensors = std::move(tensors);
  plan.header.metadata = std::move(metadata);
  try {
    PREPACK_TRY(CheckPartsReadable(plan.header));
    plan.header.data_start =
        *CheckedAlignUp(kHeaderLengthBytes + JsonBytes(plan.header), kDataAlignment);
  } catch (const Json::type_error&) {
    return Malformed(kWhere, "a tensor name or a metadata text is not valid UTF-8");
  }
  PREPACK_TRY(CheckNamesDiffer(plan.header.tensors, kWhere));
  const uint64_t json_bytes = plan.header.data_start - kHeaderLengthBytes;
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
  PREPACK_TRY_ASSIGN(File file, File::CreateNew(path));
  PREPACK_TRY(file.Allocate(plan.file_bytes));
  Xxh3Hasher hasher;
  PREPACK_TRY(plan.VisitHeader([&](uint64_t offset, std::string_view text) {
    hasher.Update(text);
    return file.WriteAt(offset, std::as_bytes(std::span(text)));
  }));
  return SafetensorsWriter(std::move(file), std::move(plan), hasher.Digest());
}

Result<SafetensorsWriter> SafetensorsWriter::Replace(const std::filesystem::path& path,
                                                     SafetensorsPlan plan) {
  PREPACK_TRY(RemoveIfThere(path));
  return Create(path, std::move(plan));
}

Result<std::optional<SafetensorsWriter>> SafetensorsWriter::Reopen(
    const std::filesystem::path& path, const SafetensorsPlan& plan) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(path, error))) {
    return std::optional<SafetensorsWriter>();
  }
  PREPACK_TRY_ASSIGN(File file, File::OpenForUpdate(path));
  if (file.size() != plan.file_bytes) return std::optional<SafetensorsWriter>();
  Xxh3Hasher hasher;
  bool same = true;
  std::string found;
  PREPACK_TRY(plan.VisitHeader([&](uint64_t offset, std::string_view expected) {
    hasher.Update(expected);
    found.resize(expected.size());
    Status read = file.ReadAt(offset, std::as_writable_bytes(std::span(found)));
    same = same && found == expected;
    return read;
  }));
  if (!same) return std::optional<SafetensorsWriter>();
  return std::optional(SafetensorsWriter(std::move(file), plan, hasher.Digest()));
}

Status SafetensorsWriter::Write(size_t index, uint64_t offset, std::span<const std::byte> bytes) {
  if (index >= plan_.header.tensors.size()) {
    return Usage(file_.path().string(), "no such tensor to write")
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

Status SafetensorsWriter::CheckArrived() {
  return file_.CheckArrived();
}

}  // namespace prepack
