#ifndef ONEDNN_CONSUMER_MATMUL_DESCRIPTION_H_
#define ONEDNN_CONSUMER_MATMUL_DESCRIPTION_H_

#include <dnnl.hpp>
#include <string>

#include "kernel_input.h"
#include "packed_folder.h"
#include "weights_form.h"

// A matmul primitive for a module, and the form that it wants its weights in.
struct MatmulDescription {
  dnnl::matmul::primitive_desc primitive;
  InputType input = InputType::kS8;
  WeightsForm wanted;
  // With static activations the primitive adds the bias and rounds to the model's dtype; otherwise
  // its result is F32, and the rest is ours to do.
  std::string result_dtype = "F32";
  bool adds_bias = false;
};

// What the form is asked with. Weights are packed once, for any number of rows of inputs, so the
// question must not depend on it.
inline constexpr dnnl::memory::dim kProbeRows = 128;

// Asks for the form with weights of format `any`, then describes the primitive for `rows` rows on
// weights in that form. Throws Refusal where oneDNN has no such primitive here.
MatmulDescription DescribeMatmul(const dnnl::engine& engine, const Module& module,
                                 const std::string& activation_dtype, dnnl::memory::dim rows);

#endif  // ONEDNN_CONSUMER_MATMUL_DESCRIPTION_H_
