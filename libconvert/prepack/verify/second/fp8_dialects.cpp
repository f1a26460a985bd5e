// The second path for FP8 under other names and in other shapes than rows.cpp knows: ModelOpt,
// Quark and FBGEMM, and transformers' stacked experts. One byte is one weight everywhere; what
// differs is where matrices begin, which way they lie, and which scale a weight has.
//
//     ModelOpt     weight_scale: one number; [N]; or [N/128, 1, K/128, 1], rounded up
//                  weight_scale_inv: [N/128, K/128], rounded up
//                  weight_scale of MXFP8: [N, K/32], exponents
//     MiniMax      weight_scale_inv of MXFP8, the same
//     Quark        weight_scale: one number, or [N]
//     FBGEMM       weight_scale: [N, 1]
//     stacked      EXPERTS.X [E, N, K] or [E, K, N] with EXPERTS.X_scale_inv in blocks of the
//                  stored matrices: modules EXPERTS.X.e
//     split        EXPERTS.e.gate_proj.weight [N, K], and EXPERTS.gate_up_proj_scale_inv, where
//     gate
//                  comes before up; EXPERTS.down_proj_scale_inv is that of one module
//
// All scales multiply.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/verify/second/decoder.h"
#include "prepack/verify/second/fields.h"
#include "prepack/verify/second/tensors.h"

namespace prepack {
namespace {

uint64_t RoundedUp(uint64_t count, uint64_t unit) {
  return count / unit + (count % unit == 0 ? 0 : 1);
}

// A matrix of weights, and the numbers that multiply them.
struct ByteMatrix {
  const StoredTensor* codes = nullptr;
  const StoredTensor* scale = nullptr;
  uint64_t first = 0;        // its first element
  uint64_t outputs = 0;      // N
  uint64_t output_step = 0;  // from an output channel to the next, in elements
  uint64_t input_step = 0;
  // Scale (n / outputs_each, k / inputs_each) is element first_scale + row step · … + column step ·
  // … of the scales.
  uint64_t outputs_each = 1;
  uint64_t inputs_each = 1;
  uint64_t first_scale = 0;
  uint64_t scale_output_step = 0;
  uint64_t scale_input_step = 0;
};

uint64_t Product(const TensorShape& shape) {
  uint64_t product = 1;  // as the size of a tensor, it does not overflow
  for (const uint64_t dim : shape) product *= dim;
  return product;
}

Status NotKnown(const Checkpoint& source, const StoredTensor& tensor) {
  return Unsupported(source.Where(tensor), "the second decoder does not know this kind of scales");
}

// Numbers [first, first + count) of a tensor of floats, whatever its shape.
Status ReadNumbers(const Checkpoint& source, const StoredTensor& tensor, uint64_t first,
                   uint64_t count, std::vector<double>& numbers) {
  return WithSecondFloats(
      tensor.dtype,
      [&]<typename T>(T /*bits*/, const auto& widen) -> Status {
        std::vector<T> stored(count);
        PREPACK_TRY(
            source.Read(tensor, first * sizeof(T), std::as_writable_bytes(std::span(stored))));
        numbers.resize(count);
        for (size_t i = 0; i < count; ++i) numbers[i] = static_cast<double>(widen(stored[i]));
        return {};
      },
      [&] { return NotKnown(source, tensor); });
}

// Bytes [inputs, rows] to [rows, inputs].
void TurnBytes(uint64_t rows, uint64_t inputs, std::vector<uint8_t>& bytes) {
  const std::vector<uint8_t> lines = bytes;
  constexpr uint64_t kLine = 64;  // bytes of a cache line
  for (uint64_t first = 0; first < inputs; first += kLine) {
    for (uint64_t row = 0; row < rows; ++row) {
      for (uint64_t i = first; i < std::min(inputs, first + kLine); ++i) {
        bytes[row * inputs + i] = lines[i * rows + row];
      }
    }
  }
}

// Scales of groups from `first_group` on: out.scales [rows, groups].
Status ReadScales(const Checkpoint& source, const SecondRows& wanted, const ByteMatrix& matrix,
                  uint64_t first_group, uint64_t groups, DecodedRows& out) {
  out.scales.resize(wanted.rows * groups);
  const auto above = [&](uint64_t row) { return (wanted.n0 + row) / matrix.outputs_each; };
  const uint64_t first = matrix.first_scale + first_group * matrix.scale_input_step;
  std::vector<double> run;
  if (matrix.scale_input_step == 1) {  // those of an output channel lie side by side
    for (uint64_t row = 0; row < wanted.rows; ++row) {
      if (row == 0 || above(row) != above(row - 1)) {
        PREPACK_TRY(ReadNumbers(source, *matrix.scale,
                                first + above(row) * matrix.scale_output_step, groups, run));
      }
      std::ranges::copy(run, &out.scales[row * groups]);
    }
    return {};
  }
  const uint64_t count = matrix.scale_output_step == 0 ? 1 : above(wanted.rows - 1) - above(0) + 1;
  for (uint64_t g = 0; g < groups; ++g) {
    PREPACK_TRY(ReadNumbers(
        source, *matrix.scale,
        first + g * matrix.scale_input_step + above(0) * matrix.scale_output_step, count, run));
    for (uint64_t row = 0; row < wanted.rows; ++row) {
      out.scales[row * groups + g] = run[count == 1 ? 0 : above(row) - above(0)];
    }
  }
  return {};
}

Status Decode(const Checkpoint& source, const SecondRows& wanted, const ByteMatrix& matrix,
              DecodedRows& out) {
  if (matrix.codes->dtype != DType::kF8E4M3) {
    return Unsupported(source.Where(*matrix.codes),
                       "the second decoder does not know this kind of codes");
  }
  if (wanted.rows == 0 || wanted.inputs == 0 || wanted.n0 > matrix.outputs ||
      wanted.rows > matrix.outputs - wanted.n0) {
    return Malformed(source.Where(*matrix.codes), "not a matrix of the expected size");
  }
  const uint64_t first_group = wanted.k0 / matrix.inputs_each;
  const uint64_t groups = (wanted.k0 + wanted.inputs - 1) / matrix.inputs_each - first_group + 1;
  out.group_of.resize(wanted.inputs);
  for (uint64_t i = 0; i < wanted.inputs; ++i) {
    out.group_of[i] = (wanted.k0 + i) / matrix.inputs_each - first_group;
  }
  // A line is a run of weights that lie side by side in the file: the inputs of an output channel,
  // or the outputs of an input channel.
  const bool by_output = matrix.input_step == 1;
  const ByteRuns lines = {
      .offset = matrix.first + wanted.n0 * matrix.output_step + wanted.k0 * matrix.input_step,
      .run_bytes = by_output ? wanted.inputs : wanted.rows,
      .stride = by_output ? matrix.output_step : matrix.input_step,
      .runs = by_output ? wanted.rows : wanted.inputs};
  std::vector<uint8_t>& codes = out.buffers.codes;
  codes.resize(wanted.rows * wanted.inputs);
  PREPACK_TRY(source.ReadRuns(*matrix.codes, lines, std::as_writable_bytes(std::span(codes))));
  if (!by_output) TurnBytes(wanted.rows, wanted.inputs, codes);
  PutSecondFp8(codes, wanted.takes_codes, out);
  return ReadScales(source, wanted, matrix, first_group, groups, out);
}

// MODULE.weight [N, K] and a scale of any of these names; the scales are still to be placed.
Result<ByteMatrix> FindMatrix(const Checkpoint& source, const SecondRows& wanted) {
  PREPACK_TRY_ASSIGN(const StoredTensor* codes, SecondTensor(source, wanted.module + ".weight"));
  ByteMatrix matrix;
  matrix.codes = codes;
  for (const char* name : {".weight_scale_inv", ".weight_scale"}) {
    if (const StoredTensor* scale = source.Find(wanted.module + name)) matrix.scale = scale;
  }
  if (matrix.scale == nullptr) {
    return Unsupported(source.Where(*codes), "the second decoder does not find its scales");
  }
  if (codes->shape.size() != 2 || codes->shape[1] != wanted.k) {
    return Malformed(source.Where(*codes), "not a matrix of the expected size");
  }
  matrix.outputs = codes->shape[0];
  matrix.output_step = wanted.k;
  matrix.input_step = 1;
  return matrix;
}

// One number, or one for each output channel.
bool PlaceByOutputs(const SecondRows& wanted, ByteMatrix& matrix) {
  const uint64_t count = Product(matrix.scale->shape);
  if (count != 1 && count != matrix.outputs) return false;
  matrix.inputs_each = wanted.k;
  matrix.outputs_each = count == 1 ? matrix.outputs : 1;
  matrix.scale_output_step = 1;
  return true;
}

// Blocks of that many outputs and inputs, row by row.
void PlaceBlocks(uint64_t k, uint64_t outputs_each, uint64_t inputs_each, ByteMatrix& matrix) {
  matrix.outputs_each = outputs_each;
  matrix.inputs_each = inputs_each;
  matrix.scale_output_step = RoundedUp(k, inputs_each);
  matrix.scale_input_step = 1;
}

// Experts.

// The block size in the config, if there is one.
Result<std::array<uint64_t, 2>> BlockOfConfig(const Checkpoint& source) {
  const Json* value = SecondConfigField(source, "weight_block_size");
  std::array<uint64_t, 2> block{};
  bool sound = value != nullptr && value->is_array() && value->size() == 2;
  for (size_t i = 0; sound && i < 2; ++i) {
    sound = (*value)[i].is_number_unsigned() && (*value)[i].get<uint64_t>() > 0;
    if (sound) block[i] = (*value)[i].get<uint64_t>();
  }
  if (sound) return block;
  return Unsupported("config.json", "the second decoder does not find the block size");
}

// "a.b" and "c" of "a.b.c".
std::pair<std::string, std::string> CutLast(const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string::npos) return {"", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

const StoredTensor* ScaleOfStack(const Checkpoint& source, const std::string& tensor) {
  const StoredTensor* scale = source.Find(tensor + "_scale_inv");
  return scale != nullptr ? scale : source.Find(tensor + "_scale");
}

// One expert of a tensor [E, N, K] or [E, K, N]. The shape of the experts' other tensor decides
// which one it is, or failing that the size of the model.
Status DecodeStacked(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out) {
  std::string name;
  uint64_t expert = 0;
  const StoredTensor* codes = CutNumber(wanted.module, name, expert) ? source.Find(name) : nullptr;
  const StoredTensor* scale = codes == nullptr ? nullptr : ScaleOfStack(source, name);
  if (scale == nullptr || codes->shape.size() != 3) {
    return Unsupported(fmt::format("module {}", wanted.module),
                       "the second decoder does not find its codes and scales");
  }
  const uint64_t above = codes->shape[1];
  const uint64_t across = codes->shape[2];
  const auto [experts, leaf] = CutLast(name);
  const StoredTensor* gate_up = source.Find(experts + ".gate_up_proj");
  const StoredTensor* down = source.Find(experts + ".down_proj");
  bool transposed = across != wanted.k;
  // If the matrix is square, K does not tell.
  if (above == across && gate_up != nullptr && down != nullptr && gate_up->shape.size() == 3 &&
      down->shape.size() == 3) {
    transposed = leaf == "down_proj" ? gate_up->shape[2] == 2 * above : down->shape[1] * 2 == above;
  }
  if (expert >= codes->shape[0] || (transposed ? above : across) != wanted.k) {
    return Malformed(source.Where(*codes), "not a matrix of the expected size");
  }
  ByteMatrix matrix{.codes = codes, .scale = scale, .first = expert * above * across};
  matrix.outputs = transposed ? across : above;
  matrix.output_step = transposed ? 1 : across;
  matrix.input_step = transposed ? across : 1;
  if (Product(scale->shape) == codes->shape[0]) {
    matrix.outputs_each = matrix.outputs;
    matrix.inputs_each = wanted.k;
    matrix.first_scale = expert;
    return Decode(source, wanted, matrix, out);
  }
  if (SecondConfigField(source, "weight_block_size") == nullptr) {
    // One for each output channel.
    if (transposed || Product(scale->shape) != codes->shape[0] * matrix.outputs) {
      return NotKnown(source, *scale);
    }
    matrix.inputs_each = wanted.k;
    matrix.first_scale = expert * matrix.outputs;
    matrix.scale_output_step = 1;
    return Decode(source, wanted, matrix, out);
  }
  PREPACK_TRY_ASSIGN(const auto block, BlockOfConfig(source));
  const uint64_t scales_above = RoundedUp(above, block[0]);
  const uint64_t scales_across = RoundedUp(across, block[1]);
  if (scale->shape != TensorShape{codes->shape[0], scales_above, scales_across}) {
    return NotKnown(source, *scale);
  }
  matrix.first_scale = expert * scales_above * scales_across;
  matrix.outputs_each = block[transposed ? 1 : 0];
  matrix.inputs_each = block[transposed ? 0 : 1];
  matrix.scale_output_step = transposed ? 1 : scales_across;
  matrix.scale_input_step = transposed ? scales_across : 1;
  return Decode(source, wanted, matrix, out);
}

}  // namespace

Status DecodeModelOpt(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out) {
  if (HasSecondFp4(source, wanted)) return DecodeFp4(source, wanted, out);
  if (source.Find(wanted.module + ".weight") == nullptr) return DecodeStacked(source, wanted, out);
  PREPACK_TRY_ASSIGN(ByteMatrix matrix, FindMatrix(source, wanted));
  const TensorShape& shape = matrix.scale->shape;
  // A single block has one number, whatever the number of dimensions.
  if (Product(shape) == 1 || shape.size() == 1) {
    if (!PlaceByOutputs(wanted, matrix)) return NotKnown(source, *matrix.scale);
    return Decode(source, wanted, matrix, out);
  }
  constexpr uint64_t kMxGroup = 32;
  const bool exponents = matrix.scale->dtype == DType::kU8 || matrix.scale->dtype == DType::kF8E8M0;
  if (exponents && shape == TensorShape{matrix.outputs, RoundedUp(wanted.k, kMxGroup)}) {
    PlaceBlocks(wanted.k, 1, kMxGroup, matrix);
    return Decode(source, wanted, matrix, out);
  }
  constexpr uint64_t kBlock = 128;
  const uint64_t above = RoundedUp(matrix.outputs, kBlock);
  const uint64_t across = RoundedUp(wanted.k, kBlock);
  if (shape != TensorShape{above, 1, across, 1} && shape != TensorShape{above, across}) {
    return NotKnown(source, *matrix.scale);
  }
  PlaceBlocks(wanted.k, kBlock, kBlock, matrix);
  return Decode(source, wanted, matrix, out);
}

Status DecodeFp8ByOutputs(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out) {
  if (HasSecondFp4(source, wanted)) return DecodeFp4(source, wanted, out);
  if (source.Find(wanted.module + ".weight") == nullptr) return DecodeStacked(source, wanted, out);
  PREPACK_TRY_ASSIGN(ByteMatrix matrix, FindMatrix(source, wanted));
  if (!PlaceByOutputs(wanted, matrix)) return NotKnown(source, *matrix.scale);
  return Decode(source, wanted, matrix, out);
}

Status DecodeFp8Experts(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out) {
  const StoredTensor* codes = source.Find(wanted.module + ".weight");
  if (codes == nullptr) return DecodeStacked(source, wanted, out);
  const auto [expert, leaf] = CutLast(wanted.module);
  std::string experts;
  uint64_t which = 0;
  const bool is_expert = CutNumber(expert, experts, which);
  const bool of_two = leaf == "gate_proj" || leaf == "up_proj";
  const StoredTensor* scale = ScaleOfStack(source, experts + "." + leaf);
  const bool shared = scale == nullptr && of_two;
  if (shared) scale = ScaleOfStack(source, experts + ".gate_up_proj");
  if (scale == nullptr || !is_expert || scale->shape.empty() || codes->shape.size() != 2 ||
      codes->shape[1] != wanted.k) {
    return Unsupported(fmt::format("module {}", wanted.module),
                       "the second decoder does not find its codes and scales");
  }
  ByteMatrix matrix{.codes = codes, .scale = scale, .outputs = codes->shape[0]};
  matrix.output_step = wanted.k;
  matrix.input_step = 1;
  if (which >= scale->shape[0]) return NotKnown(source, *scale);
  if (Product(scale->shape) == scale->shape[0]) {
    matrix.outputs_each = matrix.outputs;
    matrix.inputs_each = wanted.k;
    matrix.first_scale = which;
    return Decode(source, wanted, matrix, out);
  }
  PREPACK_TRY_ASSIGN(const auto block, BlockOfConfig(source));
  PlaceBlocks(wanted.k, block[0], block[1], matrix);
  // Scales of one expert; if gate and up share a tensor, the second half belongs to up.
  const uint64_t each = Product(scale->shape) / scale->shape[0];
  matrix.first_scale = which * each + (shared && leaf == "up_proj" ? each / 2 : 0);
  return Decode(source, wanted, matrix, out);
}

}  // namespace prepack
