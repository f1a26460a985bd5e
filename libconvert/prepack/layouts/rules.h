#pragma once

// Eligibility rules that several layouts share. Each gives a sentence with numbers, or nothing.
// Where a rule is stricter than the consumer's own check, the sentence says what the consumer would
// do with such a module.

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "prepack/layouts/layout.h"

namespace prepack {

// The first of the verdicts that is a no, else yes.
Eligibility AllOf(std::initializer_list<Eligibility> verdicts);

// What the codes are.
Eligibility FourBitCodes(const PackRequest& request);
Eligibility SignedByteCodes(const PackRequest& request);
Eligibility Fp8Codes(const PackRequest& request);
Eligibility Fp4Codes(const PackRequest& request);
Eligibility DequantizedWeights(const PackRequest& request);
Eligibility SymmetricWeights(const PackRequest& request);

// What the activations are multiplied as.
Eligibility WideActivations(const PackRequest& request);          // not quantized
Eligibility DynamicInt8Activations(const PackRequest& request);   // per token, symmetric
Eligibility Int8Activations(const PackRequest& request);          // per token or static per tensor
Eligibility Int8ActivationsPerToken(const PackRequest& request);  // with or without zero points

// One scale per output channel, or per output channel and group.
Eligibility ScalesPerChannelOrGroup(const PackRequest& request);
// One scale per output channel, or for all.
Eligibility ScalesPerChannelOrTensor(const PackRequest& request);

// "N = 7 is not a multiple of 32: the kernel works on …". `why` follows the colon.
Eligibility MultipleOf(std::string_view name, uint64_t value, uint64_t unit, std::string_view why);
Eligibility GroupsDivideK(const PackRequest& request);
// The integer kernels take four input channels at a time.
Eligibility GroupsOfFours(const PackRequest& request);
Eligibility ExpertsOnly(const PackRequest& request);
Eligibility InputsInOrder(const PackRequest& request);
Eligibility ActivationsOneOf(const PackRequest& request, std::initializer_list<DType> allowed);
// Of kernels that check the dtype where it is too late.
Eligibility ActivationsBf16OrAbort(const PackRequest& request);
// Floats of at most 32 bits, or no bias at all: the layout converts them.
Eligibility BiasIsFloat(const PackRequest& request);

// Rules of checkpoint formats. Their sentences name the format's own rule.

// Integer codes of one of these widths.
Eligibility IntegerCodes(const PackRequest& request, std::initializer_list<uint32_t> widths,
                         std::string_view wanted);
// The codes are `wanted`, which is true or not.
Eligibility CodesOf(const PackRequest& request, bool are_wanted, std::string_view wanted);
// The format has no place for how activations are quantized.
Eligibility NoActivations(const PackRequest& request, std::string_view format);
// One scale per group or per channel; one for all may be repeated.
Eligibility NoBlocks(const PackRequest& request, std::string_view format);
Eligibility WholeGroups(const PackRequest& request, std::string_view format);
Eligibility NoOrder(const PackRequest& request, std::string_view format);
// Activation order is one of groups.
Eligibility OrderOfGroups(const PackRequest& request);
// Its zero points can be stored as codes; those of version 1 of GPTQ less one.
Eligibility ZerosAreCodes(const PackRequest& request, std::string_view format);
Eligibility ZerosAboveZero(const PackRequest& request, std::string_view format);
// The format's scales are of 16 bits.
Eligibility ScalesOfHalf(const PackRequest& request, std::string_view format);
// The plain weight of the module is [N, K].
Eligibility OutputsFirst(const PackRequest& request, std::string_view format);

// What the runtime itself would do with the unpacked checkpoint, so that nobody compares apples
// with pears: vLLM picks its kernel by the CPU, and on some the kernel quantizes activations that
// the checkpoint does not. Mirrors vLLM 0.32.0 and 0.33.0, which differ where it is said, with the
// default VLLM_CPU_INT4_W4A8=1:
// vllm/model_executor/kernels/linear/{mixed_precision,scaled_mm}/{cpu,zentorch}.py.

struct RuntimeChoice {
  std::string_view cpu;     // "AMX"
  std::string_view kernel;  // "vllm-cpu/int4-w4a8", or what runs where no layout is named
  std::string_view remark;  // "8-bit activations although the checkpoint says 16"; may be empty

  friend bool operator==(const RuntimeChoice&, const RuntimeChoice&) = default;
};

// For a module stored in `format`; the request holds the scheme of the source, not the wanted one.
// Empty for a target whose runtime loads no such checkpoints.
std::vector<RuntimeChoice> RuntimeChoices(std::string_view target, std::string_view format,
                                          const PackRequest& source);

}  // namespace prepack
