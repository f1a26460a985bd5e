#include "container/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/checked.h"
#include "container/safetensors_sax.h"
#include "container/tensor_names.h"

namespace prepack {
namespace {

// How a file begins that Git LFS has not replaced by the real one.
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

// The bytes that dtype and shape ask for against those that data_offsets give.
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
    return TensorError(where, tensor, "data_offsets", "the size does not fit dtype and shape")
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
                         fmt::format("{} before it in no tensor", Bytes(tensor.begin - next)))
          .Found(RangeText(tensor))
          .Expected(fmt::format("a begin of {}", next));
    }
    if (tensor.begin < next) {
      return TensorError(where, tensor, "data_offsets",
                         fmt::format("it overlaps tensor {}", sorted[i - 1].name))
          .Found(RangeText(tensor))
          .Expected(fmt::format("a begin of {}", next));
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
  Status status = CheckNamesDiffer(sorted, where);
  if (!status.ok()) return status;
  uint64_t end = 0;
  for (const TensorInfo& tensor : sorted) {
    if (tensor.begin > tensor.end) {
      return TensorError(where, tensor, "data_offsets", "the end lies before the begin")
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
    status = CheckSize(tensor, where);
    if (!status.ok()) return status;
  }
  return CheckRanges(sorted, data_bytes, where);
}

}  // namespace

Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, uint64_t data_bytes,
                                                 std::string_view where) {
  // The library, too, takes white space in front, though its README does not.
  const size_t start = json.find_first_not_of(" \t\r\n");
  if (start == std::string_view::npos || json[start] != '{') {
    return Malformed(fmt::format("{}: header", where), "the header is not a JSON object")
        .Found(start == std::string_view::npos ? "nothing" : Printable(json.substr(start, 16), 16))
        .Expected("{")
        .Hint("Is it a safetensors file?");
  }
  SafetensorsSax sax(where);
  Status status = sax.Run(json, fmt::format("{}: header", where));
  if (!status.ok()) return status;

  SafetensorsHeader header = sax.TakeHeader();
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) {
                     return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
                   });
  status = CheckTensors(header.tensors, data_bytes, where);
  if (!status.ok()) return status;
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
  Status status = file.ReadAt(0, length_bytes);
  if (!status.ok()) return status;
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
  status = file.ReadAt(kHeaderLengthBytes, std::as_writable_bytes(std::span(json)));
  if (!status.ok()) return status;
  return ParseSafetensorsHeader(json, file.size() - kHeaderLengthBytes - length, where);
}

}  // namespace prepack
