#ifndef ONEDNN_CONSUMER_MEASUREMENT_H_
#define ONEDNN_CONSUMER_MEASUREMENT_H_

#include <dnnl.hpp>

#include "matmul_description.h"
#include "packed_folder.h"

inline constexpr dnnl::memory::dim kRows = 4;  // of random inputs

struct Measurement {
  double mapped_ms = 0;      // to the first result, from mapping the file on
  double reordered_ms = 0;   // the same, with a reorder in place of the mapping
  bool same_bytes = false;   // does that reorder write what lies in the file?
  double kernel_db = 0;      // against f64 of the same rounded inputs
  double end_to_end_db = 0;  // against f64 of the inputs before they were rounded
};

// Multiplies with the weights where the mapped file has them. The primitive must want them just so.
Measurement Measure(const dnnl::engine& engine, const PackedFolder& folder, const Module& module,
                    const MatmulDescription& matmul);

#endif  // ONEDNN_CONSUMER_MEASUREMENT_H_
