#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <random>

namespace {

using Clock = std::chrono::steady_clock;
using dnnl::memory;

constexpr int kTries = 3;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// --- The same product without oneDNN, by the closed forms that prepack's docs/layouts/ gives ---

// Element i of an array of unsigned nibbles. Those with an even i are in the low halves of bytes.
int Nibble(std::span<const std::byte> bytes, uint64_t i) {
  return std::to_integer<int>(bytes[i / 2]) >> (i % 2 * 4) & 15;
}

// The integer that stands for weight (n, k), before zero point and scale.
int Code(const Module& module, const Operands& operands, uint64_t n, uint64_t k) {
  const uint64_t element = module.form.Element(n, k);
  if (!module.Is4Bit()) return Load<int8_t>(operands.weight, element);
  const int nibble = Nibble(operands.weight, element);
  return module.symmetric && nibble > 7 ? nibble - 16 : nibble;  // s4 is two's complement
}

double Weight(const Module& module, const Operands& operands, uint64_t n, uint64_t k) {
  const uint64_t i = k / module.group_size * module.n + n;  // of [G, N]
  const int zero_point = operands.zero_point.empty() ? 0 : Nibble(operands.zero_point, i);
  return (Code(module, operands, n, k) - zero_point) *
         static_cast<double>(Load<float>(operands.scale, i));
}

// y [M, N] in f64. Column order[k] of x [M, K] belongs to weight column k; with an empty order,
// column k does.
std::vector<double> ReferenceProduct(const Module& module, const Operands& operands,
                                     std::span<const float> x, std::span<const uint64_t> order) {
  const uint64_t rows = x.size() / module.k;
  std::vector<double> y(rows * module.n);
  for (uint64_t n = 0; n < module.n; ++n) {
    for (uint64_t m = 0; m < rows && !operands.bias_values.empty(); ++m) {
      y[m * module.n + n] = operands.bias_values[n];
    }
    for (uint64_t k = 0; k < module.k; ++k) {
      const double weight = Weight(module, operands, n, k);
      const uint64_t column = order.empty() ? k : order[k];
      for (uint64_t m = 0; m < rows; ++m) y[m * module.n + n] += x[m * module.k + column] * weight;
    }
  }
  return y;
}

double SqnrDb(std::span<const float> found, std::span<const double> expected) {
  double signal = 0;
  double noise = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    signal += expected[i] * expected[i];
    noise += (found[i] - expected[i]) * (found[i] - expected[i]);
  }
  return noise == 0 ? kInfinity : 10 * std::log10(signal / noise);
}

// --- What a consumer of a checkpoint does at every start, and one of a packed folder does not ---

// Unpacks the codes into rows [N, K], the order that checkpoints have. oneDNN cannot reorder 4-bit
// codes from one form to another, so those become f32.
memory CodesInRows(const dnnl::engine& engine, const Module& module, const Operands& operands) {
  const memory::dims dims = {static_cast<memory::dim>(module.k),
                             static_cast<memory::dim>(module.n)};
  memory rows({dims, module.Is4Bit() ? memory::data_type::f32 : memory::data_type::s8,
               memory::format_tag::ba},
              engine);
  for (uint64_t n = 0; n < module.n; ++n) {
    for (uint64_t k = 0; k < module.k; ++k) {
      const int code = Code(module, operands, n, k);
      const uint64_t i = n * module.k + k;
      if (module.Is4Bit()) {
        static_cast<float*>(rows.get_data_handle())[i] = static_cast<float>(code);
      } else {
        static_cast<int8_t*>(rows.get_data_handle())[i] = static_cast<int8_t>(code);
      }
    }
  }
  return rows;
}

memory Reorder(memory& rows, const memory::desc& wanted) {
  const dnnl::engine engine = rows.get_engine();
  memory weights(wanted, engine);
  dnnl::stream stream(engine);
  dnnl::reorder(rows, weights).execute(stream, rows, weights);
  stream.wait();
  return weights;
}

std::span<const std::byte> BytesOf(const memory& memory) {
  return {static_cast<const std::byte*>(memory.get_data_handle()), memory.get_desc().get_size()};
}

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

std::vector<float> RandomInputs(uint64_t count) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (float& value : x) value = FromBF16(ToBF16(normal(generator)));
  return x;
}

Accuracy MeasureAccuracy(const Module& module, const Operands& operands, std::span<const float> x,
                         const KernelInput& input, std::span<const float> y) {
  return {.kernel_db = SqnrDb(y, ReferenceProduct(module, operands, input.values, {})),
          .end_to_end_db = SqnrDb(y, ReferenceProduct(module, operands, x, operands.input_order))};
}

Times MeasureTimes(const PackedFolder& folder, const Module& module, const Matmul& matmul,
                   const Operands& operands, const KernelInput& input) {
  memory rows = CodesInRows(matmul.primitive.get_engine(), module, operands);
  Operands reordered_operands = operands;
  Times times{.mapped_ms = kInfinity, .reordered_ms = kInfinity};
  for (int i = 0; i < kTries; ++i) {
    Clock::time_point start = Clock::now();
    MappedFolder mapped(folder.path);
    Multiply(matmul, module, FindOperands(module, mapped), input);
    times.mapped_ms = std::min(times.mapped_ms, MillisecondsSince(start));

    start = Clock::now();
    const memory reordered = Reorder(rows, matmul.primitive.weights_desc());
    reordered_operands.weight = BytesOf(reordered);
    Multiply(matmul, module, reordered_operands, input);
    times.reordered_ms = std::min(times.reordered_ms, MillisecondsSince(start));
    times.same_bytes = std::ranges::equal(reordered_operands.weight, operands.weight);
  }
  return times;
}
