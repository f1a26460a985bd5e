#pragma once

// All that a consumer needs oneDNN for: the matmul primitive of a module, the form in which that
// primitive wants its weights, and the multiplication.

#include <dnnl.hpp>
#include <string>
#include <vector>

#include "operands.h"
#include "packed_folder.h"

// The CPU as oneDNN sees it. Intel's build of oneDNN reaches the CPU through an OpenCL driver,
// which the environment must name before the program makes the first engine. This function names
// the driver that lies beside the library, unless the user has named another.
dnnl::engine MakeEngine();

std::string OneDnnVersion();  // such as "3.13.2"
std::string OneDnnIsa();      // the instructions that oneDNN may use on this CPU, such as "0x7"

// Whether oneDNN sums int8 products in 32 bits. On a CPU without VNNI it may sum pairs of products
// in 16 bits, which overflow when the weights are large.
bool SumsInt8Exactly();

struct Matmul {
  dnnl::matmul::primitive_desc primitive;
  WeightsForm wanted;  // the form in which the primitive wants its weights
  std::string input_dtype = "I8";
  // With static activations the primitive adds the bias and rounds to the model's dtype itself.
  // Otherwise its result is F32, and Multiply does the rest.
  std::string result_dtype = "F32";
  bool adds_bias = false;
};

// Asks oneDNN which form it wants, by passing weights of format `any`, and describes the primitive
// for `rows` rows of inputs on weights in that form. Throws Refusal when oneDNN has no such
// primitive on this machine.
Matmul DescribeMatmul(const dnnl::engine& engine, const PackedFolder& folder, const Module& module,
                      dnnl::memory::dim rows);

// A module is used only when its weights have the form that the primitive wants on this machine.
// CheckOrigin throws Refusal when another version of oneDNN, or oneDNN on another CPU, chose the
// form; CheckForm does when any field of the stored form differs from what the primitive wants. The
// message has the command that packs the folder again.
void CheckOrigin(const PackedFolder& folder, const Module& module);
void CheckForm(const PackedFolder& folder, const Module& module, const Matmul& matmul);

// Computes y [rows, N] of a module, bias included. The primitive reads the weights, scales and zero
// points where `operands` has them.
std::vector<float> Multiply(const Matmul& matmul, const Module& module, const Operands& operands,
                            const KernelInput& input);
