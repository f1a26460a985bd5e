#include "prepack/check/plain_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_set>

#include "prepack/base/parallel.h"
#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/check/config_shapes.h"
#include "prepack/check/finding_list.h"
#include "prepack/check/model_layout.h"
#include "prepack/check/plain_statistics.h"
#include "prepack/container/model_config.h"
#include "prepack/formats/json_fields.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

// Read at a time by one thread: it stays in its cache, and the file is still read in long runs.
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

// NaN and infinity are the numbers whose exponent has all bits set. Simple enough that compilers
// make vector instructions of it.
template <typename Word>
uint64_t CountFullExponents(std::span<const std::byte> bytes, Word exponent) {
  uint64_t count = 0;
  for (size_t at = 0; at + sizeof(Word) <= bytes.size(); at += sizeof(Word)) {
    Word word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof(Word));
    count += (word & exponent) == exponent ? 1U : 0U;
  }
  return count;
}

// model_type of the language model, or "".
std::string FamilyOf(const Json& config) {
  const Json* type = JsonMember(LanguageConfig(config), "model_type");
  return type != nullptr && type->is_string() ? type->get<std::string>() : std::string();
}

struct Piece {
  size_t tensor = 0;  // index of the caller
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t not_finite = 0;          // values
  uint64_t first_offset = 0;        // of the first of them in the tensor, in bytes
  PlainStatistics statistics = {};  // only of tensors that are judged by them
};

class PlainValues {
 public:
  PlainValues(const Checkpoint& checkpoint, const QuantizedModel& model) : checkpoint_(checkpoint) {
    std::unordered_set<std::string_view> quantized;
    for (const auto& linear : model.modules) {
      quantized.insert(linear->source_tensors().begin(), linear->source_tensors().end());
    }
    for (const StoredTensor& tensor : checkpoint.tensors()) {
      const bool mask = LastPart(tensor.name).find("mask") != std::string_view::npos;
      if (mask || !IsPlainFloat(tensor.dtype) || quantized.contains(tensor.name)) continue;
      for (uint64_t offset = 0; offset < tensor.bytes; offset += kPieceBytes) {
        pieces_.push_back({.tensor = tensors_.size(),
                           .offset = offset,
                           .bytes = std::min(kPieceBytes, tensor.bytes - offset)});
      }
      tensors_.push_back(&tensor);
    }
  }

  uint64_t total_bytes() const {
    uint64_t total = 0;
    for (const Piece& piece : pieces_) total += piece.bytes;
    return total;
  }

  Status Read(unsigned threads, Progress& progress) {
    std::vector<std::vector<std::byte>> buffers(threads);
    return ParallelFor(pieces_.size(), threads, [&](size_t index, unsigned worker) {
      Piece& piece = pieces_[index];
      if (CancellationRequested()) return Interrupted(tensors_[piece.tensor]->name);
      progress.BeginItem(tensors_[piece.tensor]->name);
      buffers[worker].resize(static_cast<size_t>(piece.bytes));
      Status status = ReadPiece(piece, buffers[worker]);
      progress.Add(piece.bytes);
      return status;
    });
  }

  void Report(std::vector<Finding>& findings) const {
    std::vector<PlainTensor> judged;
    for (size_t at = 0; at < pieces_.size();) {
      const size_t tensor = pieces_[at].tensor;
      uint64_t not_finite = 0;
      uint64_t first = 0;
      PlainStatistics statistics;
      for (; at < pieces_.size() && pieces_[at].tensor == tensor; ++at) {
        if (not_finite == 0) first = pieces_[at].first_offset;
        not_finite += pieces_[at].not_finite;
        statistics.Merge(pieces_[at].statistics);
      }
      const StoredTensor& stored = *tensors_[tensor];
      if (IsJudgedPlain(stored)) judged.push_back({&stored, statistics});
      if (not_finite == 0) continue;
      const uint64_t each = DTypeBits(stored.dtype) / 8;
      findings.push_back(
          MakeFinding("value-not-finite", checkpoint_.Where(stored),
                      fmt::format("{} of {} values are NaN or infinite, the first is number {}",
                                  not_finite, stored.bytes / each, first / each)));
    }
    JudgePlain(checkpoint_, FamilyOf(checkpoint_.config()), judged, findings);
  }

 private:
  Status ReadPiece(Piece& piece, std::span<std::byte> buffer) const {
    const StoredTensor& tensor = *tensors_[piece.tensor];
    PREPACK_TRY(checkpoint_.Read(tensor, piece.offset, buffer));
    piece.not_finite = CountNotFinite(tensor.dtype, buffer);
    if (IsJudgedPlain(tensor)) piece.statistics = MeasurePlain(tensor.dtype, buffer);
    if (piece.not_finite == 0) return {};
    const size_t each = DTypeBits(tensor.dtype) / 8;
    size_t at = 0;
    while (CountNotFinite(tensor.dtype, buffer.subspan(at, each)) == 0) at += each;
    piece.first_offset = piece.offset + at;
    return {};
  }

  const Checkpoint& checkpoint_;
  std::vector<const StoredTensor*> tensors_;
  std::vector<Piece> pieces_;
};

}  // namespace

bool IsPlainFloat(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

uint64_t CountNotFinite(DType dtype, std::span<const std::byte> bytes) {
  switch (dtype) {
    case DType::kF16:
      return CountFullExponents<uint16_t>(bytes, 0x7C00U);
    case DType::kBF16:
      return CountFullExponents<uint16_t>(bytes, 0x7F80U);
    case DType::kF32:
      return CountFullExponents<uint32_t>(bytes, 0x7F800000U);
    default:
      return CountFullExponents<uint64_t>(bytes, 0x7FF0000000000000U);
  }
}

Status CheckPlainValues(const Checkpoint& checkpoint, const QuantizedModel& model, unsigned threads,
                        Progress& progress, std::vector<Finding>& findings) {
  PlainValues values(checkpoint, model);
  progress.Begin("checking float tensors", values.total_bytes());
  Status status = values.Read(threads, progress);
  if (status.ok()) values.Report(findings);
  return status;
}

}  // namespace prepack
