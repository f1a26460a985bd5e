#ifndef ONEDNN_CONSUMER_REFERENCE_H_
#define ONEDNN_CONSUMER_REFERENCE_H_

#include <span>
#include <vector>

#include "operands.h"
#include "packed_folder.h"

// The integer that weight (n, k) is stored as, before zero point and scale, from the packed bytes.
int Code(const Module& module, const Operands& operands, uint64_t n, uint64_t k);

// y [M, N] of a module in f64, from its packed bytes by their closed forms. Shares nothing with
// oneDNN. Column order[k] of x [M, K] belongs to weight k; an empty order: column k.
std::vector<double> ReferenceProduct(const Module& module, const Operands& operands,
                                     std::span<const float> x, std::span<const uint64_t> order);

// Signal to noise in dB: infinite when both are equal.
double SqnrDb(std::span<const float> found, std::span<const double> expected);

#endif  // ONEDNN_CONSUMER_REFERENCE_H_
