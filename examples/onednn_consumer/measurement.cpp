#include "measurement.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <random>

#include "floats.h"
#include "matmul_run.h"
#include "operands.h"
#include "reference.h"
#include "reorder_at_load.h"

namespace {

constexpr int kTries = 3;  // the best of them counts

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Numbers that a bf16 model could have.
std::vector<float> RandomInputs(uint64_t count) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> x;
  for (uint64_t i = 0; i < count; ++i) x.push_back(FromBF16(ToBF16(normal(generator))));
  return x;
}

std::span<const std::byte> BytesOf(const dnnl::memory& memory) {
  return {static_cast<const std::byte*>(memory.get_data_handle()), memory.get_desc().get_size()};
}

}  // namespace

Measurement Measure(const dnnl::engine& engine, const PackedFolder& folder, const Module& module,
                    const MatmulDescription& matmul) {
  MappedFolder files(folder.path);
  const Operands operands = FindOperands(module, files);
  const std::vector<float> x = RandomInputs(static_cast<uint64_t>(kRows) * module.k);
  KernelInput input =
      MakeKernelInput(module, operands, matmul.input, Ordered(x, module.k, operands));
  const dnnl::memory::desc wanted = matmul.primitive.weights_desc();
  ReorderAtLoad reorder(module, operands);

  // The primitive's own first time is not what is compared.
  const std::vector<std::byte> zeros(wanted.get_size());
  std::vector<float> y = RunMatmul(engine, matmul, module, operands, zeros, input);

  constexpr double kNever = std::numeric_limits<double>::infinity();
  Measurement result{.mapped_ms = kNever, .reordered_ms = kNever};
  for (int i = 0; i < kTries; ++i) {
    Clock::time_point start = Clock::now();
    MappedFolder mapped(folder.path);
    const Operands in_file = FindOperands(module, mapped);
    y = RunMatmul(engine, matmul, module, in_file, in_file.weight, input);
    result.mapped_ms = std::min(result.mapped_ms, MillisecondsSince(start));

    start = Clock::now();
    const dnnl::memory reordered = reorder.Run(engine, wanted);
    RunMatmul(engine, matmul, module, operands, BytesOf(reordered), input);
    result.reordered_ms = std::min(result.reordered_ms, MillisecondsSince(start));
    result.same_bytes = std::ranges::equal(BytesOf(reordered), operands.weight);
  }
  result.kernel_db = SqnrDb(y, ReferenceProduct(module, operands, input.values, {}));
  result.end_to_end_db = SqnrDb(y, ReferenceProduct(module, operands, x, operands.input_order));
  return result;
}
