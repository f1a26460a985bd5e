#ifndef PREPACK_BASE_ISA_VERSIONS_H_
#define PREPACK_BASE_ISA_VERSIONS_H_

// The choice between the versions of something for several instruction sets. A level that has no
// version of its own gets that of the best level below.

#include <cstddef>

#include "base/isa.h"

namespace prepack {

template <typename T>
struct IsaVersion {
  Isa isa;
  T version;  // a pointer
};

// `versions` are in the order of Isa, and begin with kScalar.
template <typename T, size_t kCount>
T BestVersion(const IsaVersion<T> (&versions)[kCount], Isa isa) {
  size_t best = 0;
  while (best + 1 < kCount && versions[best + 1].isa <= isa) ++best;
  return versions[best].version;
}

}  // namespace prepack

#endif  // PREPACK_BASE_ISA_VERSIONS_H_
