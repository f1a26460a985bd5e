#pragma once

// Compares config.json of the source with that of the packed folder, without a parser that convert
// uses: a mistake in that parser would change both in the same way.

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/float_convert.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/gemm/kernel_model.h"

namespace prepack {

// Every value outside of the declarations of the quantization must stand in both, in the same order
// and in the same characters, but that a model that becomes bf16 says so. Empty: they do; else
// which does not.
std::string WhyConfigDiffers(std::string_view source, std::string_view packed,
                             bool becomes_bf16 = false);

// How the second decoders find what a checkpoint says of its quantization. Writers put it into
// config.json, at the top level or into the config of any model nested in it, under one of two
// names, or into a file of their own. The readers know the same places (see
// formats/quantization_config.h), by other code.

// Every object that declares the quantization: those of config.json, the outermost first, then
// those of the quantizers' own files. They point into the checkpoint.
std::vector<const Json*> SecondDeclarations(const Checkpoint& source);

// GPTQModel takes the keys of its config in any case; nobody else does.
enum class KeyCase : uint8_t { kExact, kAny };

// The field in the first declaration that has it, or nullptr. Pass keys in lower
// case.
const Json* SecondConfigField(const Checkpoint& source, const std::string& key,
                              KeyCase key_case = KeyCase::kExact);
// Every value that a declaration has under that key, however deep: what a group of layers or an
// override may say.
std::vector<const Json*> SecondConfigValues(const Checkpoint& source, const std::string& key,
                                            KeyCase key_case = KeyCase::kExact);
// Those that are positive integers, each once, ascending.
std::vector<uint64_t> SecondConfigNumbers(const Checkpoint& source, const std::string& key,
                                          KeyCase key_case = KeyCase::kExact);

// Is every module symmetric, as far as `sym` of the config and of its overrides says? It is where
// they say nothing.
bool SecondAllSymmetric(const Checkpoint& source, KeyCase key_case = KeyCase::kExact);

// Calibration-free exports of AutoRound (model_free) say "auto_round" of asymmetric modules, which
// means that z is stored. Up to 0.15 it was z − 1. By code of its own, as the whole second path:
//
//     mean over the first groups of many modules of (code − stored field)   near 0: z,  near 1: z −
//     1
//
// Left out are modules whose fields are all one number (they are symmetric), and fields near the
// ends of their range. Where the mean does not tell, the version of AutoRound does.

// True for an export that stores z − 1 although its label says z.
bool IsOldModelFree(const Checkpoint& source);

// How the second decoders read tensors: by name, element by element, sharing nothing with the
// readers in formats/.

// The tensor of that name. A missing tensor is kUnsupported: the reader found the module, so
// it is stored in a way that the second path does not know.
Result<const StoredTensor*> SecondTensor(const Checkpoint& source, const std::string& name);

// X of "EXPERTS.X.7", and 7; false for a name that ends otherwise.
bool CutNumber(const std::string& module, std::string& stem, uint64_t& number);

// A tensor as a matrix: a vector is one column, a scalar is [1, 1], and of a stack of matrices the
// rows follow each other.
struct SecondShape {
  uint64_t rows = 1;
  uint64_t columns = 1;
};

// kUnsupported for more than three dimensions.
Result<SecondShape> ShapeOfSecond(const Checkpoint& source, const StoredTensor& tensor);

// A run of columns of such a matrix, rows one after the other, as raw elements.
struct SecondRange {
  uint64_t row = 0;
  uint64_t rows = 0;
  uint64_t column = 0;
  uint64_t columns = 0;
};

// Where it lies in the tensor, whose elements have `element_bytes`. What lies outside is
// kMalformed.
Result<ByteRuns> RunsOfSecond(const Checkpoint& source, const StoredTensor& tensor,
                              const SecondRange& range, uint64_t element_bytes);

// T is an integer of the tensor's element size.
template <typename T>
Status ReadSecond(const Checkpoint& source, const StoredTensor& tensor, const SecondRange& range,
                  std::vector<T>& out) {
  PREPACK_TRY_ASSIGN(const ByteRuns lines, RunsOfSecond(source, tensor, range, sizeof(T)));
  out.resize(range.rows * range.columns);
  return source.ReadRuns(tensor, lines, std::as_writable_bytes(std::span(out)));
}

// Calls work(row, bytes) with the bytes of each of its rows, where they lie in the mapped file.
template <typename Work>
Status VisitSecond(const Checkpoint& source, const StoredTensor& tensor, const ByteRuns& rows,
                   const Work& work) {
  if (rows.runs == 0) return {};
  return source.Visit(tensor, rows.offset, (rows.runs - 1) * rows.stride + rows.run_bytes,
                      [&](const std::byte* bytes) {
                        for (uint64_t row = 0; row < rows.runs; ++row) {
                          work(row, reinterpret_cast<const uint8_t*>(bytes + row * rows.stride));
                        }
                      });
}

// Calls work(bits, widen) with an element of the size of the dtype and what makes a float of it, or
// otherwise(). A byte is the exponent of a power of two, and 0 is half of the smallest f32 that has
// no mantissa: only scales are ever read as numbers from bytes here.
template <typename Work, typename Otherwise>
Status WithSecondFloats(DType dtype, const Work& work, const Otherwise& otherwise) {
  switch (dtype) {
    case DType::kF32:
      return work(uint32_t{}, [](uint32_t bits) { return std::bit_cast<float>(bits); });
    case DType::kBF16:
      return work(uint16_t{}, [](uint16_t bits) { return BF16ToF32(bits); });
    case DType::kF16:
      return work(uint16_t{}, [](uint16_t bits) { return F16ToF32(bits); });
    case DType::kU8:
    case DType::kF8E8M0:
      return work(uint8_t{}, [](uint8_t bits) { return F8E8M0ToF32(bits); });
    default:
      return otherwise();
  }
}

// ReadSecond for floats of 16 or 32 bits, and for exponents of 8 bits (F8_E8M0, also stored as U8).
Status ReadSecondFloats(const Checkpoint& source, const StoredTensor& tensor,
                        const SecondRange& range, std::vector<double>& out);

// Which scale an input channel has, for the second decoders.

// The group of each input channel of the slab, of `groups` groups that k input channels have: by
// the index tensor of that name where there is one that says something, else one group after the
// other. Negative entries count from the end; an index that is −1 or 0 throughout was never filled
// in. Entries out of range are kMalformed.
Status ReadSecondGroups(const Checkpoint& source, const std::string& index_name, uint64_t k,
                        uint64_t groups, const InputSlab& slab, std::vector<uint64_t>& group_of);

// Groups from the first to the last that input channels have.
struct SecondGroupRange {
  uint64_t first = 0;
  uint64_t count = 0;
};
// Makes group_of count from the first group that is in it.
SecondGroupRange CountFromFirstGroup(std::vector<uint64_t>& group_of);

// Scales [rows, groups] from scales [groups, rows].
void TransposeScales(const std::vector<double>& columns, uint64_t rows,
                     std::vector<double>& scales);

}  // namespace prepack
