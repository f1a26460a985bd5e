#pragma once

// How fast the bricks of verify's GEMM level are, on one thread: the f64 reference and the models
// of the kernels.

namespace prepack::bench {

// Per instruction set and panel of output channels: GFLOP/s.
void PrintReferenceRates();
// Per layout and instruction set: G multiply-adds/s with 64 rows of activations, and with one, of
// which most is the decoding of weights.
void PrintModelRates();
// Per format: what it takes to decode the source by the second path and to bring the weights to
// f64, in ns per weight.
void PrintTruthRates();

}  // namespace prepack::bench
