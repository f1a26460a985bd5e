#pragma once

// A second, independent path from the source checkpoint to weights. It shares no code with the
// readers in formats/: it takes tensors by their names, works on 32-bit words where the readers
// work on bytes, and knows nothing of schemes. If a reader is wrong, the two disagree, and the GEMM
// level of verify fails although the packed bytes are what the reader delivered.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/gemm/kernel_model.h"

namespace prepack {

// Codes begin with a word, or with a line of words, at every multiple of so many input channels, in
// every format.
inline constexpr uint64_t kSecondInputsUnit = 64;

// A byte holds so many.
inline constexpr size_t kSecondCodes = 256;

// Weights of output channels [n0, n0 + rows), W[n, k] = step · scale, with k in the order of the
// checkpoint whatever order the groups are in. The two are apart because kernels round the scale.
struct DecodedRows {
  std::vector<float> steps;        // [rows, K]: code − zero point, or what an FP8 code stands for
  std::vector<int8_t> small;       // the same, instead of these: see takes_small
  std::vector<double> scales;      // [rows, groups], groups is at least 1
  std::vector<uint64_t> group_of;  // [K]: which of them
  // Whoever decodes into this also takes steps as bytes, if they fit.
  bool takes_small = false;
  // Whoever decodes into this also takes codes of another kind as bytes: small[i] stands for
  // values[byte], of kSecondCodes, which are no NaN where they are used.
  bool takes_codes = false;
  const float* values = nullptr;  // null: for itself
  // What decoders read into; memory that is used again.
  struct Buffers {
    std::vector<uint16_t> halves;
    std::vector<uint32_t> words;
    std::vector<uint32_t> turned;
    std::vector<uint8_t> codes;
    std::vector<double> numbers;
  };
  Buffers buffers = {};

  // Makes room for so many steps; memory that is used again keeps what was in it.
  void Resize(uint64_t count, bool as_small) {
    steps.resize(as_small ? 0 : count);
    small.resize(as_small ? count : 0);
  }
  uint64_t inputs() const { return group_of.size(); }
  uint64_t rows() const { return (steps.size() + small.size()) / inputs(); }
  float Step(uint64_t row, uint64_t k) const {
    const uint64_t at = row * inputs() + k;
    return small.empty() ? steps[at] : ValueOf(small[at]);
  }
  float ValueOf(int8_t of_small) const {
    return values == nullptr ? static_cast<float>(of_small)
                             : values[static_cast<uint8_t>(of_small)];
  }
  // Makes `steps` of small ones.
  void Widen() {
    if (small.empty()) return;
    steps.resize(small.size());
    std::ranges::transform(small, steps.begin(), [&](int8_t x) { return ValueOf(x); });
    small.clear();
  }
  uint64_t groups() const { return scales.size() / rows(); }
};

// Output channels first, first + step, … of a module of the checkpoint.
struct SecondPiece {
  std::string module;
  uint64_t first = 0;
  uint64_t step = 1;
};

// How a checkpoint quantizes the activations of a module.
struct DecodedInput {
  double scale = 0;
  double zero_point = 0;

  friend bool operator==(const DecodedInput&, const DecodedInput&) = default;
};

// The rows that are asked for, as the decoders below are given them.
struct SecondRows;

class SecondDecoder {
 public:
  // For modules of the given format; kUnsupported if it has no second decoder.
  static Result<SecondDecoder> Make(const Checkpoint& source, const std::string& format);

  // `k` is the number of input channels of the module. Out-of-range rows are an error; that the
  // module is stored in a way that this path does not know is kUnsupported.
  Status Decode(const std::string& module, uint64_t k, uint64_t n0, uint64_t rows,
                DecodedRows& out) const;
  // The same for a slab of the input channels alone, which begins at a multiple of
  // kSecondInputsUnit and ends at one, or at K. Scales are those of the groups from the first to
  // the last that it has a part of.
  Status DecodeSlab(const std::string& module, uint64_t k, const InputSlab& slab, uint64_t n0,
                    uint64_t rows, DecodedRows& out) const;
  // Where a projection of an expert, EXPERTS.7.up_proj with n output channels, is stored, if that
  // is in a stack: EXPERTS.gate_up_proj.7, of which it is the second half, or in gpt-oss every
  // other channel. nullopt: it is stored by itself.
  std::optional<SecondPiece> FindInStack(std::string_view module, uint64_t n) const;
  // Does the source give the module a bias?
  bool HasBias(const std::string& module) const;
  // The bias of the module, one number per output channel.
  Status ReadBias(const std::string& module, std::vector<double>& bias) const;
  // Static quantization of its activations; kUnsupported when the checkpoint does not say.
  Result<DecodedInput> ReadInput(const std::string& module) const;

 private:
  using DecodeFn = Status (*)(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out);

  SecondDecoder(const Checkpoint& source, DecodeFn decode, bool old_model_free)
      : source_(&source), decode_(decode), old_model_free_(old_model_free) {}

  const Checkpoint* source_;
  DecodeFn decode_;
  bool old_model_free_;  // verify/second/config.h
};

// One second decoder per format; verify/second/decoder.h has the contract, and the choice between
// them.

// What is to be decoded: output channels [n0, n0 + rows) and input channels [k0, k0 + inputs) of a
// module with k input channels. k0 is a multiple of kSecondInputsUnit; inputs is, too, unless they
// reach to the end.
struct SecondRows {
  std::string module;
  uint64_t k = 0;
  uint64_t n0 = 0;
  uint64_t rows = 0;
  uint64_t k0 = 0;
  uint64_t inputs = 0;

  bool whole() const { return inputs == k; }
  bool old_model_free = false;  // of the checkpoint, see verify/second/config.h
  bool takes_small = false;     // see DecodedRows
  bool takes_codes = false;     // the same
};

// Those of the formats, as the list of formats names them: rows of codes of compressed-tensors and
// fp8, which name the same tensors (rows.cpp); the same FP8 in other shapes (fp8_dialects.cpp);
// FP4 of all dialects (fp4.cpp); AWQ in the layouts gemm, gemv and gemv_fast, told apart by the
// shapes; GPTQ, with or without an index of groups; AutoRound, in the tensors of either.
#define PREPACK_FORMAT(id, reader, keys, decode) \
  Status decode(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out);
#include "prepack/formats/formats.inc"
// Experts of `quant_method: fp8` that are stacked, or whose scales are, which DecodeFp8 hands on.
Status DecodeFp8Experts(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out);
// Is it FP4 that the decoders of a module's other formats hand on to DecodeFp4: two codes in a
// byte, with one scale for 16 or 32 of them?
bool HasSecondFp4(const Checkpoint& source, const SecondRows& wanted);
// A layer that no quantizer touched, of a model of any format.
bool HasSecondPlain(const Checkpoint& source, const SecondRows& wanted);
Status DecodePlain(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out);
// Blocks of ggml, found by the manifest of the file.
Status DecodeGguf(const Checkpoint& source, const SecondRows& wanted, DecodedRows& out);
// Does the file hold a stack of experts of that name?
bool HasSecondGgufStack(const Checkpoint& source, const std::string& stack);

// The second path for GPTQ's tensors, which AutoRound stores, too: words, and not bytes, straight
// from the formula
//
//     code[n, k] = bits [b·k, b·k + b) of the words qweight[…, n],  b = 32 · rows of qweight / K
//     z[g, n]    = bits [b·n, b·n + b) of the words qzeros[g, …], + 1 where z − 1 is stored;
//                  2^(b − 1) where the scheme is symmetric
//
// Where some modules are symmetric and others are not, qzeros says z of both: writers store 2^(b −
// 1) there, too. Fields that are 2^(b − 1) − 1 throughout, where z is stored, are those of a
// symmetric module whose writer stored z − 1.
//
// g is that of g_idx, or k / group size. A stored −1 borrows from the fields above it in its word;
// fields of 3 bits cross words and wrap one by one.
//
// Fields of 5, 6 and 7 bits lie in planes (verify/second/tensors.h), and so do those of 3 bits in
// the format gptq_p; z is stored as it is there.

// What the config says of zero points, and of how fields lie.
struct SecondGptqMeaning {
  bool symmetric = true;  // every module is
  bool minus_one = true;
  bool planes = false;  // fields of 3 bits lie in planes
};

Status DecodeGptqTensors(const Checkpoint& source, const SecondRows& wanted,
                         const SecondGptqMeaning& meaning, DecodedRows& out);

}  // namespace prepack
