#ifndef PREPACK_FORMATS_READER_ISA_H_
#define PREPACK_FORMATS_READER_ISA_H_

#include "base/isa.h"

namespace prepack {

// The instruction set that readers decode with: the best one, or that of PREPACK_ISA. Where the
// choice is an error, the command reports it before it reads weights; readers then use kScalar.
inline Isa ReaderIsa() {
  static const Isa isa = [] {
    const Result<Isa> chosen = ChooseIsa();
    return chosen.ok() ? *chosen : Isa::kScalar;
  }();
  return isa;
}

}  // namespace prepack

#endif  // PREPACK_FORMATS_READER_ISA_H_
