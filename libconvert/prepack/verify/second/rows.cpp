// The second path for tensors of compressed-tensors and fp8, in which a row is an output channel:
//
//     MODULE.weight_packed   I32 [N, words]  codes of b bits, offset by 2^(b − 1)
//     MODULE.weight          I8 [N, K]       signed codes, or F8_E4M3
//     MODULE.weight_scale, .weight_scale_inv, .scale   one number; [N, G]; or one per block
//     MODULE.weight_zero_point               I8 like the scales, or packed down the rows
//     MODULE.weight_g_idx                    the group of each input channel
//
// Experts may be stacked: MODULE.weight_packed and the others then have one more dimension in front
// and hold the modules MODULE.0, MODULE.1 ….
//
// Scales multiply. weight_scale_inv divides, as its name suggests, only if the config says
// `weight_scale_semantics: inverse`.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "prepack/base/checked.h"
#include "prepack/base/status.h"
#include "prepack/verify/second/decoder.h"
#include "prepack/verify/second/fields.h"
#include "prepack/verify/second/tensors.h"

namespace prepack {
namespace {

// One scale for `block_rows` output channels; along K as group_of says.
struct ScaleGrid {
  SecondShape shape;
  uint64_t block_rows = 1;
  SecondGroupRange groups;         // columns that are wanted
  std::vector<uint64_t> group_of;  // by input channel that is wanted: which of these

  uint64_t RowOf(uint64_t n) const { return n / block_rows; }
};

class RowTensors {
 public:
  // `may_divide`: whether the config can say that scales divide.
  RowTensors(const Checkpoint& source, const SecondRows& wanted, bool may_divide)
      : source_(source), wanted_(wanted), may_divide_(may_divide), stored_as_(wanted.module) {
    if (!FindCodes()) FindStack();
  }

  Status Decode(DecodedRows& out);

 private:
  const StoredTensor* Find(const char* suffix) const {
    return source_.Find(fmt::format("{}.{}", stored_as_, suffix));
  }
  bool FindCodes();
  void FindStack();
  bool stacked() const { return stored_as_ != wanted_.module; }
  // The shape of this module's matrix in a tensor; a stack of vectors holds one of them.
  Result<SecondShape> ShapeOf(const StoredTensor& tensor) const;
  // The range counts from the first row of this module.
  template <typename T>
  Status Read(const StoredTensor& tensor, SecondRange range, std::vector<T>& out) const;
  Status Disagree(const StoredTensor& tensor) const {
    return Malformed(source_.Where(tensor), "shapes of codes, scales and zero points disagree");
  }
  Status FindFields(const StoredTensor& packed);
  Result<SecondRange> InTensor(const StoredTensor& tensor, SecondRange range) const;
  Status ReadPacked(const StoredTensor& packed, DecodedRows& out) const;
  Status ReadBytes(const StoredTensor& weight, DecodedRows& out) const;
  Status PutFields(const StoredTensor& tensor, const SecondRange& wanted, uint64_t element_bytes,
                   SecondSteps& steps) const;
  Status FindGrid(const StoredTensor& codes, const StoredTensor& scale);
  // The group of each input channel, of all.
  Status FindGroups(uint64_t n, const StoredTensor& scale);
  // Of codes of so many bits, without their sign: [rows, groups], or one for all.
  Status ReadZeros(uint32_t bits, std::vector<int16_t>& zeros) const;
  Status ReadScales(const StoredTensor& scale, std::vector<double>& scales) const;

  const Checkpoint& source_;
  const SecondRows& wanted_;
  const bool may_divide_;
  std::string stored_as_;  // name of the tensors before the last dot
  uint64_t experts_ = 1;   // modules in each tensor
  uint64_t expert_ = 0;    // the one that is wanted
  const StoredTensor* packed_ = nullptr;
  const StoredTensor* weight_ = nullptr;
  const StoredTensor* zeros_ = nullptr;
  SecondFields fields_;  // of packed codes and zero points
  ScaleGrid grid_;
};

bool RowTensors::FindCodes() {
  packed_ = Find("weight_packed");
  weight_ = Find("weight");
  return packed_ != nullptr || weight_ != nullptr;
}

// The module as one of a stack, if there is such a stack.
void RowTensors::FindStack() {
  const size_t dot = wanted_.module.rfind('.');
  if (dot == std::string::npos) return;
  const char* end = wanted_.module.data() + wanted_.module.size();
  uint64_t number = 0;
  const auto parsed = std::from_chars(wanted_.module.data() + dot + 1, end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end) return;
  stored_as_ = wanted_.module.substr(0, dot);
  const StoredTensor* codes = FindCodes() ? (packed_ != nullptr ? packed_ : weight_) : nullptr;
  if (codes != nullptr && codes->shape.size() == 3 && number < codes->shape[0]) {
    experts_ = codes->shape[0];
    expert_ = number;
    return;
  }
  packed_ = nullptr;
  weight_ = nullptr;
  stored_as_ = wanted_.module;
}

Result<SecondShape> RowTensors::ShapeOf(const StoredTensor& tensor) const {
  if (tensor.shape.size() > 2 && !stacked()) {
    return Unsupported(source_.Where(tensor), "the second decoder takes matrices only");
  }
  Result<SecondShape> shape = ShapeOfSecond(source_, tensor);
  if (!shape.ok()) return shape;
  if (shape->rows % experts_ != 0) return Disagree(tensor);
  shape->rows /= experts_;
  return shape;
}

// The same range of all modules that are stacked in the tensor.
Result<SecondRange> RowTensors::InTensor(const StoredTensor& tensor, SecondRange range) const {
  PREPACK_TRY_ASSIGN(const SecondShape shape, ShapeOf(tensor));
  if (range.row > shape.rows || range.rows > shape.rows - range.row) return Disagree(tensor);
  range.row += expert_ * shape.rows;
  return range;
}

template <typename T>
Status RowTensors::Read(const StoredTensor& tensor, SecondRange range, std::vector<T>& out) const {
  PREPACK_TRY_ASSIGN(range, InTensor(tensor, range));
  if constexpr (std::is_same_v<T, double>) {
    return ReadSecondFloats(source_, tensor, range, out);
  } else {
    return ReadSecond(source_, tensor, range, out);
  }
}

// The width of some layer in the config that gives this number of words, and whether codes cross
// words, as they do since 0.18.0.
Status RowTensors::FindFields(const StoredTensor& packed) {
  PREPACK_TRY_ASSIGN(const SecondShape shape, ShapeOf(packed));
  std::vector<SecondFields> fitting;
  for (const uint64_t bits : SecondConfigNumbers(source_, "num_bits")) {
    if (bits > 8) continue;
    for (const bool whole_words : {false, true}) {
      const SecondFields fields{.bits = static_cast<uint32_t>(bits), .whole_words = whole_words};
      if (fields.Words(wanted_.k) != shape.columns) continue;
      if (whole_words && 32 % bits == 0) continue;  // the same thing
      fitting.push_back(fields);
    }
  }
  if (fitting.empty()) return Disagree(packed);
  if (fitting.size() > 1) {
    return Unsupported(source_.Where(packed),
                       "the second decoder cannot tell how many bits the codes have");
  }
  fields_ = fitting.front();
  return {};
}

// Fields of 4 and 8 bits lie in the bytes of a word as in the word, the lowest first.
Status RowTensors::ReadPacked(const StoredTensor& packed, DecodedRows& out) const {
  std::vector<int16_t> zeros;
  PREPACK_TRY(ReadZeros(fields_.bits, zeros));
  SecondSteps steps(fields_.bits, zeros, wanted_.rows, wanted_.takes_small, out);
  const uint64_t first = fields_.FirstWord(wanted_.k0);
  const uint64_t columns = fields_.LastWord(wanted_.k0 + wanted_.inputs - 1) - first + 1;
  const SecondRange wanted{wanted_.n0, wanted_.rows, first, columns};
  if (fields_.bits == 4 || fields_.bits == 8) {
    return PutFields(packed, wanted, sizeof(uint32_t), steps);
  }
  std::vector<uint32_t>& words = out.buffers.words;
  PREPACK_TRY(Read(packed, wanted, words));
  words.resize(words.size() + kFieldSlack);
  for (uint64_t row = 0; row < wanted_.rows; ++row) {
    const std::span codes =
        fields_.Split(&words[row * columns], wanted_.k0, wanted_.inputs, out.buffers.codes);
    steps.Put(row, codes.data());
  }
  return {};
}

// Signed codes, or FP8.
Status RowTensors::ReadBytes(const StoredTensor& weight, DecodedRows& out) const {
  if (weight.dtype == DType::kF8E4M3) {
    std::vector<uint8_t>& bytes = out.buffers.codes;
    PREPACK_TRY(Read(weight, {wanted_.n0, wanted_.rows, wanted_.k0, wanted_.inputs}, bytes));
    PutSecondFp8(bytes, wanted_.takes_codes, out);
    return {};
  }
  if (weight.dtype != DType::kI8) {
    return Unsupported(source_.Where(weight), "the second decoder does not know this kind of codes")
        .Found(DTypeName(weight.dtype));
  }
  std::vector<int16_t> zeros;
  PREPACK_TRY(ReadZeros(8, zeros));
  SecondSteps steps(8, zeros, wanted_.rows, wanted_.takes_small, out);
  steps.SetSigned();
  return PutFields(weight, {wanted_.n0, wanted_.rows, wanted_.k0, wanted_.inputs}, sizeof(int8_t),
                   steps);
}

// Of elements of so many bytes.
Status RowTensors::PutFields(const StoredTensor& tensor, const SecondRange& wanted,
                             uint64_t element_bytes, SecondSteps& steps) const {
  PREPACK_TRY_ASSIGN(const SecondRange range, InTensor(tensor, wanted));
  PREPACK_TRY_ASSIGN(const ByteRuns rows, RunsOfSecond(source_, tensor, range, element_bytes));
  return VisitSecond(source_, tensor, rows,
                     [&](uint64_t row, const uint8_t* bytes) { steps.PutFields(row, bytes); });
}

// Rows and columns of a block in one of the config's groups of layers, such that `scale` has one
// number per block.
std::optional<std::array<uint64_t, 2>> BlockOf(const Checkpoint& source, const SecondShape& scale,
                                               uint64_t n, uint64_t k) {
  for (const char* key : {"block_structure", "weight_block_size"}) {
    for (const Json* value : SecondConfigValues(source, key)) {
      if (!value->is_array() || value->size() != 2) continue;
      std::array<uint64_t, 2> block{};
      for (size_t i = 0; i < 2; ++i) {
        if ((*value)[i].is_number_unsigned()) block[i] = (*value)[i].get<uint64_t>();
      }
      if (block[0] == 0 || block[1] == 0) continue;
      if (CeilDiv(n, block[0]) == scale.rows && CeilDiv(k, block[1]) == scale.columns) {
        return block;
      }
    }
  }
  return std::nullopt;
}

Status RowTensors::FindGrid(const StoredTensor& codes, const StoredTensor& scale) {
  PREPACK_TRY_ASSIGN(const SecondShape shape, ShapeOf(scale));
  const uint64_t n = codes.shape[codes.shape.size() - 2];
  grid_.shape = shape;
  PREPACK_TRY(FindGroups(n, scale));
  grid_.groups = {.first = 0, .count = shape.columns};
  if (!wanted_.whole()) grid_.groups = CountFromFirstGroup(grid_.group_of);
  return {};
}

Status RowTensors::FindGroups(uint64_t n, const StoredTensor& scale) {
  const SecondShape& shape = grid_.shape;
  const auto block = BlockOf(source_, shape, n, wanted_.k);
  if (block) {
    grid_.block_rows = (*block)[0];
    grid_.group_of.resize(wanted_.inputs);
    for (uint64_t i = 0; i < wanted_.inputs; ++i) {
      grid_.group_of[i] = (wanted_.k0 + i) / (*block)[1];
    }
    return {};
  }
  if (shape.rows == n) {
    return ReadSecondGroups(source_, stored_as_ + ".weight_g_idx", wanted_.k, shape.columns,
                            {.k0 = wanted_.k0, .inputs = wanted_.inputs}, grid_.group_of);
  }
  if (shape.rows != 1 || shape.columns != 1) return Disagree(scale);
  grid_.block_rows = n;  // one scale for all
  grid_.group_of.assign(wanted_.inputs, 0);
  return {};
}

// Zero points are signed, like the codes.
Status RowTensors::ReadZeros(uint32_t bits, std::vector<int16_t>& zeros) const {
  const auto middle = static_cast<int16_t>(1 << (bits - 1));
  zeros.assign(1, middle);
  if (zeros_ == nullptr) return {};
  const uint64_t columns = grid_.groups.count;
  const bool packed = zeros_->dtype == DType::kI32;
  if (packed && packed_ == nullptr) {
    return Unsupported(source_.Where(*zeros_), "packed zero points for codes that are not packed");
  }
  const uint64_t first = packed ? fields_.FirstWord(wanted_.n0) : grid_.RowOf(wanted_.n0);
  const uint64_t last_row = wanted_.n0 + wanted_.rows - 1;
  const uint64_t last = packed ? fields_.LastWord(last_row) : grid_.RowOf(last_row);
  const SecondRange range{
      .row = first, .rows = last - first + 1, .column = grid_.groups.first, .columns = columns};
  std::vector<uint32_t> words;
  std::vector<int8_t> bytes;
  PREPACK_TRY(packed ? Read(*zeros_, range, words) : Read(*zeros_, range, bytes));
  zeros.resize(wanted_.rows * columns);
  for (uint64_t row = 0; row < wanted_.rows; ++row) {
    const uint64_t n = wanted_.n0 + row;
    for (uint64_t group = 0; group < columns; ++group) {
      zeros[row * columns + group] = static_cast<int16_t>(
          packed ? static_cast<int>(fields_.At(std::span(words).subspan(group), n, columns, first))
                 : bytes[(grid_.RowOf(n) - first) * columns + group] + middle);
    }
  }
  return {};
}

Status RowTensors::ReadScales(const StoredTensor& scale, std::vector<double>& scales) const {
  const uint64_t first = grid_.RowOf(wanted_.n0);
  const uint64_t rows = grid_.RowOf(wanted_.n0 + wanted_.rows - 1) - first + 1;
  const uint64_t columns = grid_.groups.count;
  std::vector<double> stored;
  PREPACK_TRY(Read(scale, {first, rows, grid_.groups.first, columns}, stored));
  const Json* semantics =
      may_divide_ ? SecondConfigField(source_, "weight_scale_semantics") : nullptr;
  if (semantics != nullptr) {
    if (*semantics != "inverse") {
      return Unsupported(source_.Where(scale),
                         "the second decoder does not know whether scales multiply or divide");
    }
    for (double& number : stored) number = 1.0 / number;
  }
  scales.resize(wanted_.rows * columns);
  for (uint64_t row = 0; row < wanted_.rows; ++row) {
    const uint64_t line = grid_.RowOf(wanted_.n0 + row) - first;
    std::copy_n(&stored[line * columns], columns, &scales[row * columns]);
  }
  return {};
}

Status RowTensors::Decode(DecodedRows& out) {
  const StoredTensor* codes = packed_ != nullptr ? packed_ : weight_;
  const StoredTensor* scale = nullptr;
  for (const char* name : {"scale", "weight_scale_inv", "weight_scale"}) {
    if (const StoredTensor* found = Find(name)) scale = found;
  }
  if (codes == nullptr || scale == nullptr) {
    return Unsupported(fmt::format("module {}", wanted_.module),
                       "the second decoder does not find its codes and scales");
  }
  if (codes->shape.size() != (stacked() ? 3 : 2)) {
    return Unsupported(source_.Where(*codes), "the second decoder takes matrices only");
  }
  if (wanted_.rows == 0 || wanted_.k == 0) return Disagree(*codes);
  zeros_ = Find("weight_zero_point");
  if (packed_ != nullptr) PREPACK_TRY(FindFields(*packed_));
  PREPACK_TRY(FindGrid(*codes, *scale));
  out.group_of = std::move(grid_.group_of);
  PREPACK_TRY(packed_ != nullptr ? ReadPacked(*packed_, out) : ReadBytes(*weight_, out));
  return ReadScales(*scale, out.scales);
}

}  // namespace

Status DecodeCompressedTensors(const Checkpoint& source, const SecondRows& wanted,
                               DecodedRows& out) {
  if (HasSecondFp4(source, wanted)) return DecodeFp4(source, wanted, out);
  return RowTensors(source, wanted, false).Decode(out);
}

Status DecodeFp8(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out) {
  // A module without a scale under its own name is an expert.
  const auto has = [&](const char* suffix) {
    return source.Find(wanted.module + suffix) != nullptr;
  };
  if (!has(".scale") && !has(".weight_scale_inv") && !has(".weight_scale")) {
    return DecodeFp8Experts(source, wanted, out);
  }
  // Those of DeepSeek V4 may be FP4.
  if (HasSecondFp4(source, wanted)) return DecodeFp4(source, wanted, out);
  return RowTensors(source, wanted, true).Decode(out);
}

}  // namespace prepack
