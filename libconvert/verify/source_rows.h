#ifndef PREPACK_VERIFY_SOURCE_ROWS_H_
#define PREPACK_VERIFY_SOURCE_ROWS_H_

// What the second decoder says of a packed module, which may be made of several modules of the
// source.

#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "verify/packed_folder.h"
#include "verify/second_decoder.h"

namespace prepack {

// Weights of output channels [n0, n0 + rows), of all input channels or of a slab of them; see
// SecondDecoder::Decode.
Status DecodeSourceRows(const SecondDecoder& source, const PackedModule& packed, uint64_t n0,
                        uint64_t rows, DecodedRows& out, const std::optional<InputSlab>& slab = {});
// The bias, one number per output channel; empty: the source has none. That only some members have
// one is kMalformed.
Status ReadSourceBias(const SecondDecoder& source, const PackedModule& packed,
                      std::vector<double>& bias);
// Static quantization of its activations. That those of members differ is kMalformed.
Result<DecodedInput> ReadSourceInput(const SecondDecoder& source, const PackedModule& packed);

}  // namespace prepack

#endif  // PREPACK_VERIFY_SOURCE_ROWS_H_
