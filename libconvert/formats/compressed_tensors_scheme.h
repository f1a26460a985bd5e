#ifndef PREPACK_FORMATS_COMPRESSED_TENSORS_SCHEME_H_
#define PREPACK_FORMATS_COMPRESSED_TENSORS_SCHEME_H_

// What a config group says of a module, in the terms of the canonical layout.

#include "base/result.h"
#include "canonical/scheme.h"
#include "formats/compressed_tensors_config.h"
#include "formats/compressed_tensors_module.h"
#include "formats/row_checks.h"

namespace prepack {

// The scheme of a module that is stored as `storage`. A group that cannot mean such tensors is
// kMalformed, one that asks for what is not read kUnsupported.
Result<Scheme> MakeCtScheme(const CtModule& module, const CtGroup& group, CtStorage storage,
                            const MatrixShape& shape);

// kMalformed unless the group quantizes weights of the type that the storage holds.
Status CheckCtGroup(const CtModule& module, const CtGroup& group, CtStorage storage);

}  // namespace prepack

#endif  // PREPACK_FORMATS_COMPRESSED_TENSORS_SCHEME_H_
