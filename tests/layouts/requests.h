#ifndef PREPACK_TESTS_LAYOUTS_REQUESTS_H_
#define PREPACK_TESTS_LAYOUTS_REQUESTS_H_

// Modules that every layout is tested with: a layout in the table is tested by the generic tests
// without another line.

#include <vector>

#include "layouts/table.h"

namespace prepack::testing {

// Shapes with odd multiples, primes and single blocks; all groupings of them; symmetric and not;
// all activation dtypes. Only what the layout takes.
inline std::vector<PackRequest> RequestsFor(const Layout& layout) {
  std::vector<PackRequest> requests;
  for (const uint64_t n : {1, 7, 32, 96, 160, 2080}) {
    for (const uint64_t k : {8, 32, 40, 224, 992, 4096}) {
      for (const uint64_t group_size : {uint64_t{2}, uint64_t{8}, uint64_t{32}, k}) {
        for (const bool symmetric : {true, false}) {
          for (const DType activations : {DType::kBF16, DType::kF16, DType::kF32}) {
            if (n * k > 1'000'000 && group_size == 2) continue;  // nothing new, only slow
            PackRequest request;
            request.scheme = {
                .code = CodeType::kU4,
                .bits = 4,
                .granularity = group_size == k ? Granularity::kChannel : Granularity::kGroup,
                .group_size = group_size,
                .scale_rows = 1,
                .symmetric = symmetric,
                .activations = {}};
            request.n = n;
            request.k = k;
            request.activation_dtype = activations;
            if (k % group_size == 0 && layout.eligible(request).ok) requests.push_back(request);
          }
        }
      }
    }
  }
  return requests;
}

}  // namespace prepack::testing

#endif  // PREPACK_TESTS_LAYOUTS_REQUESTS_H_
