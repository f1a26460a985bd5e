// The second path for blocks of ggml. Every bit is taken from where ggml's structs have it, number
// by number; rows are found by walking through what the manifest says of each tensor, where the
// reader turns its loops round.
//
// Weights of types with minima are code · d + m. Where m is −z · d rounded to f16, for a z that a
// code can be, the step is code − z: that is what such a minimum was made of.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "prepack/base/float_convert.h"
#include "prepack/convert/gguf/file_origin.h"
#include "prepack/verify/second/decoder.h"
#include "prepack/verify/second/tensors.h"

namespace prepack {
namespace {

using gguf::GgmlType;
using enum gguf::GgmlType;

double SecondHalf(const uint8_t* bytes) {
  const unsigned bits = bytes[0] + 256U * bytes[1];
  const int exponent = static_cast<int>(bits >> 10 & 31U);
  const int fraction = static_cast<int>(bits & 1023U);
  const double size =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return bits >= 32768 ? -size : size;
}

double SecondE2M1(unsigned bits) {
  constexpr std::array<double, 8> kSizes = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return bits >= 8 ? -kSizes[bits - 8] : kSizes[bits];
}

// Weights of a block: steps, and a scale for every `group` of them.
struct SecondBlock {
  std::array<double, 256> steps = {};
  std::array<double, 16> scales = {};
  uint64_t group = 0;
};

unsigned HighOrLow(const uint8_t* bytes, uint64_t i, uint64_t half) {
  return i % (2 * half) < half ? bytes[i % half] % 16U : bytes[i % half] / 16U;
}

// One scale, and for two of the types one minimum.
void DecodeOfOneScale(GgmlType type, const uint8_t* bytes, SecondBlock& block) {
  const bool five = type == kQ5_0 || type == kQ5_1;
  const bool has_minimum = type == kQ4_1 || type == kQ5_1;
  const uint8_t* fifth = bytes + (has_minimum ? 4 : 2);
  const uint8_t* low = fifth + (five ? 4 : 0);
  const double scale = SecondHalf(bytes);
  block.scales[0] = scale;
  block.group = 32;
  const int levels = five ? 32 : 16;
  int zero = has_minimum ? 0 : levels / 2;
  bool is_zero_point = true;
  const double minimum = has_minimum ? SecondHalf(bytes + 2) : 0;
  if (has_minimum) {
    is_zero_point = false;
    for (int z = 0; z < levels && !is_zero_point; ++z) {
      const float rounded = F16ToF32(F32ToF16(static_cast<float>(-z * scale)));
      is_zero_point = static_cast<double>(rounded) == minimum;
      zero = is_zero_point ? z : 0;
    }
  }
  if (!is_zero_point) block.scales[0] = 1;
  for (uint64_t i = 0; i < 32; ++i) {
    int code = static_cast<int>(HighOrLow(low, i, 16));
    if (five) code += 16 * (fifth[i / 8] >> i % 8 & 1);
    // In f32, as ggml computes it.
    block.steps[i] =
        is_zero_point ? code - zero
                      : static_cast<double>(static_cast<float>(code) * static_cast<float>(scale) +
                                            static_cast<float>(minimum));
  }
}

// The K types are not code times scale for everyone: their weights in f32, as ggml computes them.
struct OfK {
  double scale = 0;    // of the whole block
  double minimum = 0;  // the same of minima
  std::array<int, 16> scales = {};
  std::array<int, 16> minima = {};
  std::array<int, 256> codes = {};
  uint64_t group = 16;
};

void TakeQ2(const uint8_t* bytes, OfK& k) {
  k.scale = SecondHalf(bytes + 80);
  k.minimum = SecondHalf(bytes + 82);
  for (uint64_t g = 0; g < 16; ++g) {
    k.scales[g] = bytes[g] % 16;
    k.minima[g] = bytes[g] / 16;
  }
  for (uint64_t i = 0; i < 256; ++i) {
    k.codes[i] = bytes[16 + i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3;
  }
}

void TakeQ3(const uint8_t* bytes, OfK& k) {
  k.scale = SecondHalf(bytes + 108);
  for (uint64_t g = 0; g < 16; ++g) {
    const int low = g < 8 ? bytes[96 + g] % 16 : bytes[96 + g - 8] / 16;
    k.scales[g] = low + 16 * (bytes[104 + g % 4] >> (2 * (g / 4)) & 3) - 32;
  }
  for (uint64_t i = 0; i < 256; ++i) {
    const int low = bytes[32 + i / 128 * 32 + i % 32] >> (2 * (i % 128 / 32)) & 3;
    k.codes[i] = low - ((bytes[i % 32] >> (i / 32) & 1) != 0 ? 0 : 4);
  }
}

// Q4_K, and Q5_K with fifth bits.
void TakeQ45(const uint8_t* bytes, bool five, OfK& k) {
  k.group = 32;
  k.scale = SecondHalf(bytes);
  k.minimum = SecondHalf(bytes + 2);
  const uint8_t* packed = bytes + 4;
  for (uint64_t g = 0; g < 4; ++g) {
    k.scales[g] = packed[g] % 64;
    k.minima[g] = packed[g + 4] % 64;
    k.scales[g + 4] = packed[g + 8] % 16 + packed[g] / 64 * 16;
    k.minima[g + 4] = packed[g + 8] / 16 + packed[g + 4] / 64 * 16;
  }
  const uint8_t* low = bytes + (five ? 48 : 16);
  for (uint64_t i = 0; i < 256; ++i) {
    k.codes[i] = static_cast<int>(HighOrLow(low + i / 64 * 32, i % 64, 32));
    if (five) k.codes[i] += 16 * (bytes[16 + i % 32] >> (i / 32) & 1);
  }
}

void DecodeOfK(GgmlType type, const uint8_t* bytes, SecondBlock& block) {
  OfK k;
  if (type == kQ2_K) TakeQ2(bytes, k);
  if (type == kQ3_K) TakeQ3(bytes, k);
  if (type == kQ4_K || type == kQ5_K) TakeQ45(bytes, type == kQ5_K, k);
  block.group = 256;
  block.scales[0] = 1;
  for (uint64_t i = 0; i < 256; ++i) {
    const uint64_t g = i / k.group;
    const auto scale = static_cast<float>(k.scale * k.scales[g]);
    const auto minimum = static_cast<float>(k.minimum * k.minima[g]);
    const float product = scale * static_cast<float>(k.codes[i]);
    block.steps[i] = static_cast<double>(type == kQ3_K ? product : product - minimum);
  }
}

void DecodeOfQ6K(const uint8_t* bytes, SecondBlock& block) {
  block.group = 16;
  for (uint64_t g = 0; g < 16; ++g) {
    const int scale = bytes[192 + g] < 128 ? bytes[192 + g] : bytes[192 + g] - 256;
    block.scales[g] = SecondHalf(bytes + 208) * scale;
  }
  for (uint64_t i = 0; i < 256; ++i) {
    const uint64_t in_half = i % 128;
    const unsigned low = bytes[i / 128 * 64 + in_half % 64] >> (in_half / 64 * 4) & 15U;
    const unsigned high = bytes[128 + i / 128 * 32 + in_half % 32] >> (in_half / 32 * 2) & 3U;
    block.steps[i] = static_cast<int>(low + 16 * high) - 32;
  }
}

void DecodeOfFp4(GgmlType type, const uint8_t* bytes, float factor, SecondBlock& block) {
  if (type == kMXFP4) {
    block.group = 32;
    block.scales[0] = std::ldexp(1.0, bytes[0] - 127);
    for (uint64_t i = 0; i < 32; ++i) block.steps[i] = SecondE2M1(HighOrLow(bytes + 1, i, 16));
    return;
  }
  block.group = 16;
  for (uint64_t g = 0; g < 4; ++g) {
    const int exponent = bytes[g] >> 3 & 15;
    const int fraction = bytes[g] & 7;
    const double scale =
        exponent == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, exponent - 10);
    block.scales[g] = static_cast<double>(static_cast<float>(scale) * factor);
    for (uint64_t i = 0; i < 16; ++i) {
      block.steps[16 * g + i] = SecondE2M1(HighOrLow(bytes + 4 + 8 * g, i, 8));
    }
  }
}

// Kinds of types that have their own code here; others are not known.
bool DecodeSecondBlock(GgmlType type, const uint8_t* bytes, float factor, SecondBlock& block) {
  switch (type) {
    case kQ4_0:
    case kQ4_1:
    case kQ5_0:
    case kQ5_1:
      DecodeOfOneScale(type, bytes, block);
      return true;
    case kQ8_0:
      block.group = 32;
      block.scales[0] = SecondHalf(bytes);
      for (uint64_t i = 0; i < 32; ++i) block.steps[i] = static_cast<int8_t>(bytes[2 + i]);
      return true;
    case kQ2_K:
    case kQ3_K:
    case kQ4_K:
    case kQ5_K:
      DecodeOfK(type, bytes, block);
      return true;
    case kQ6_K:
      DecodeOfQ6K(bytes, block);
      return true;
    case kMXFP4:
    case kNVFP4:
      DecodeOfFp4(type, bytes, factor, block);
      return true;
    default:
      return false;
  }
}

// A row of the file.
struct SecondRow {
  const gguf::Tensor* tensor = nullptr;
  uint64_t row = 0;
};

// The rows of a tensor of the checkpoint, in their order.
std::vector<SecondRow> RowsOf(const gguf::FileOrigin& origin, const std::string& name) {
  const gguf::Manifest& manifest = origin.manifest();
  const auto number =
      static_cast<size_t>(std::ranges::find(manifest.sources, name) - manifest.sources.begin());
  uint64_t all = 0;
  for (const auto& [tensor_name, record] : manifest.tensors) {
    for (const gguf::RowPiece& piece : record.rows) {
      if (piece.source == number) all += piece.rows();
    }
  }
  std::vector<SecondRow> rows(all);
  for (const auto& [tensor_name, record] : manifest.tensors) {
    const gguf::Tensor* tensor = origin.model().FindTensor(tensor_name);
    uint64_t place = 0;
    for (const gguf::RowPiece& piece : record.rows) {
      const uint64_t count = piece.rows();
      for (uint64_t i = 0; tensor != nullptr && piece.source == number && i < count; ++i) {
        const uint64_t row = piece.Row(i);
        if (row < all) rows[row] = {tensor, place + i};
      }
      place += count;
    }
  }
  return rows;
}

// Those of the last module that the thread asked for.
struct KeptRows {
  uint64_t origin = 0;
  std::string name;
  std::vector<SecondRow> rows;
};

const std::vector<SecondRow>& FindRows(const gguf::FileOrigin& origin, const std::string& name) {
  thread_local KeptRows kept;
  if (kept.origin != origin.number() || kept.name != name) {
    kept = {origin.number(), name, RowsOf(origin, name)};
  }
  return kept.rows;
}

const gguf::FileOrigin* OriginOf(const Checkpoint& source) {
  return dynamic_cast<const gguf::FileOrigin*>(source.origin());
}

bool HasSource(const gguf::FileOrigin& origin, const std::string& name) {
  return std::ranges::count(origin.manifest().sources, name) != 0;
}

// The factor of a row of NVFP4.
Status ReadFactor(const gguf::FileOrigin& origin, const SecondRow& row, float& factor) {
  factor = 1;
  const std::string& name = row.tensor->name;
  const gguf::Tensor* factors =
      origin.model().FindTensor(name.substr(0, name.find_last_of('.')) + ".scale");
  if (row.tensor->type != kNVFP4 || factors == nullptr) return {};
  uint64_t rows = 1;
  for (size_t i = 1; i < row.tensor->dims.size(); ++i) rows *= row.tensor->dims[i];
  const uint64_t count = factors->bytes / 4;
  if (count == 0 || rows % count != 0) return Malformed(name, "not the factors of its tensor");
  return origin.model().Visit(*factors, row.row / (rows / count) * 4, 4,
                              [&](const std::byte* bytes) {
                                uint32_t bits = 0;
                                for (int i = 0; i < 4; ++i)
                                  bits |= std::to_integer<uint32_t>(bytes[i]) << (8 * i);
                                factor = std::bit_cast<float>(bits);
                              });
}

// Which of the blocks' weights are wanted, of a row.
class RowDecoding {
 public:
  RowDecoding(const gguf::FileOrigin& origin, const SecondRows& wanted, DecodedRows& out)
      : origin_(origin), wanted_(wanted), out_(out) {}

  Status Decode(const SecondRow& row, uint64_t index) {
    const gguf::GgmlTypeInfo& info = gguf::InfoOf(row.tensor->type);
    if (row.tensor->dims.empty() || row.tensor->dims[0] != wanted_.k || info.block == 1) {
      return Malformed(row.tensor->name, "not rows of the module");
    }
    float factor = 1;
    PREPACK_TRY(ReadFactor(origin_, row, factor));
    const uint64_t first = wanted_.k0 / info.block;
    const uint64_t last = (wanted_.k0 + wanted_.inputs - 1) / info.block;
    const uint64_t row_bytes = wanted_.k / info.block * info.bytes;
    bool known = true;
    SecondBlock block;
    PREPACK_TRY(origin_.model().Visit(
        *row.tensor, row.row * row_bytes + first * info.bytes, (last - first + 1) * info.bytes,
        [&](const std::byte* bytes) {
          for (uint64_t b = first; b <= last && known; ++b) {
            known = DecodeSecondBlock(
                row.tensor->type,
                reinterpret_cast<const uint8_t*>(bytes + (b - first) * info.bytes), factor, block);
            if (known) Take(block, b * info.block, info.block, index);
          }
        }));
    if (known) return {};
    return Unsupported(row.tensor->name, "no second decoder for this type").Found(info.name);
  }

 private:
  void Take(const SecondBlock& block, uint64_t start, uint64_t count, uint64_t index) {
    const uint64_t first_group = wanted_.k0 / block.group;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t k = start + i;
      if (k < wanted_.k0 || k >= wanted_.k0 + wanted_.inputs) continue;
      const uint64_t group = k / block.group - first_group;
      out_.steps[index * wanted_.inputs + k - wanted_.k0] = static_cast<float>(block.steps[i]);
      out_.group_of[k - wanted_.k0] = group;
      const uint64_t groups = (wanted_.k0 + wanted_.inputs - 1) / block.group - first_group + 1;
      if (out_.scales.size() != wanted_.rows * groups) out_.scales.resize(wanted_.rows * groups);
      out_.scales[index * groups + group] = block.scales[i / block.group];
    }
  }

  const gguf::FileOrigin& origin_;
  const SecondRows& wanted_;
  DecodedRows& out_;
};

}  // namespace

bool HasSecondGgufStack(const Checkpoint& source, const std::string& stack) {
  const gguf::FileOrigin* origin = OriginOf(source);
  return origin != nullptr && HasSource(*origin, stack);
}

Status DecodeGguf(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out) {
  const gguf::FileOrigin* origin = OriginOf(source);
  std::string name = wanted.module + ".weight";
  uint64_t first = 0;
  if (origin == nullptr) return Unsupported(source.path().string(), "not a GGUF file");
  if (!HasSource(*origin, name)) {
    uint64_t expert = 0;
    std::string stem = wanted.module;
    const bool numbered = CutNumber(wanted.module, stem, expert);
    name = numbered && HasSource(*origin, stem + ".weight") ? stem + ".weight" : stem;
    const auto shape = origin->manifest().shapes.find(name);
    if (shape != origin->manifest().shapes.end() && shape->second.shape.size() == 3) {
      first = expert * shape->second.shape[1];
    }
  }
  const std::vector<SecondRow>& rows = FindRows(*origin, name);
  if (wanted.rows == 0 || wanted.inputs == 0 || first + wanted.n0 + wanted.rows > rows.size()) {
    return Malformed(fmt::format("module {}", wanted.module), "the file does not hold its rows");
  }
  out.scales.clear();
  out.steps.resize(wanted.rows * wanted.inputs);
  out.group_of.resize(wanted.inputs);
  RowDecoding decoding(*origin, wanted, out);
  for (uint64_t row = 0; row < wanted.rows; ++row) {
    const SecondRow& found = rows[first + wanted.n0 + row];
    if (found.tensor == nullptr) {
      return Malformed(fmt::format("module {}", wanted.module), "the file lacks one of its rows");
    }
    PREPACK_TRY(decoding.Decode(found, row));
  }
  return {};
}

}  // namespace prepack
