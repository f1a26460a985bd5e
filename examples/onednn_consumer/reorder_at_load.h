#ifndef ONEDNN_CONSUMER_REORDER_AT_LOAD_H_
#define ONEDNN_CONSUMER_REORDER_AT_LOAD_H_

#include <dnnl.hpp>
#include <vector>

#include "operands.h"
#include "packed_folder.h"

// What a consumer of a checkpoint does at every start, and that of a packed folder does not: bring
// weights from rows [N, K] into the form that the primitive wants.
//
// oneDNN cannot reorder 4-bit codes among each other, so those begin as f32.
class ReorderAtLoad {
 public:
  // Takes the packed weights apart.
  ReorderAtLoad(const Module& module, const Operands& operands);
  // The weights in the form `wanted`, in memory of their own.
  dnnl::memory Run(const dnnl::engine& engine, const dnnl::memory::desc& wanted);

 private:
  dnnl::memory::dims dims_;
  std::vector<int8_t> s8_;  // [N, K]; one of the two is filled
  std::vector<float> f32_;
};

#endif  // ONEDNN_CONSUMER_REORDER_AT_LOAD_H_
