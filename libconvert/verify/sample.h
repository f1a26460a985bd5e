#ifndef PREPACK_VERIFY_SAMPLE_H_
#define PREPACK_VERIFY_SAMPLE_H_

#include "convert/manifest.h"
#include "verify/module_states.h"
#include "verify/verify.h"

namespace prepack {

// Modules that stand for all: of every layout, shape and scheme a fraction, and at least one. The
// same for the same seed, whatever else is in the folder: a module is taken by the hash of its
// name.
ModuleSample ChooseSample(const Manifest& manifest, const SampleChoice& choice);

}  // namespace prepack

#endif  // PREPACK_VERIFY_SAMPLE_H_
