#ifndef PREPACK_BASE_PROCESS_ISA_H_
#define PREPACK_BASE_PROCESS_ISA_H_

#include "base/isa.h"

namespace prepack {

// The instruction set of what has no choice of its own, such as readers: the best one, or that of
// PREPACK_ISA. Where the choice is an error, the command reports it before it touches weights;
// until then it is kScalar.
inline Isa ProcessIsa() {
  static const Isa isa = [] {
    const Result<Isa> chosen = ChooseIsa();
    return chosen.ok() ? *chosen : Isa::kScalar;
  }();
  return isa;
}

}  // namespace prepack

#endif  // PREPACK_BASE_PROCESS_ISA_H_
