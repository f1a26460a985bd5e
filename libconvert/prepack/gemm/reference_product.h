#pragma once

// The product of reference.h by Eigen, for the files that compile it, one per instruction set.
//
// Eigen is made of templates, which every file that uses them compiles for itself, and of which the
// linker keeps any one. A file that is compiled for more than the oldest CPU must therefore include
// kernels/instructions.h and give Eigen another name, `#define Eigen EigenAvx2`, before it includes
// this header. Then what it compiles is of no use to other files. What is here lies in an unnamed
// namespace for the same reason.

#include <Eigen/Core>
#include <cstdint>

namespace prepack {
namespace {  // NOLINT(google-build-namespaces): see above

void Product(uint64_t m, uint64_t n, uint64_t k, const double* x, const double* w, double* y) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto rows = static_cast<Eigen::Index>(m);
  const auto columns = static_cast<Eigen::Index>(n);
  const auto inner = static_cast<Eigen::Index>(k);
  const Eigen::Map<const Matrix> x_matrix(x, rows, inner);
  const Eigen::Map<const Matrix> w_matrix(w, columns, inner);
  Eigen::Map<Matrix> y_matrix(y, rows, columns);
  y_matrix.noalias() = x_matrix * w_matrix.transpose();
}

}  // namespace
}  // namespace prepack
