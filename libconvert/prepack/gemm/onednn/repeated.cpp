// A primitive that is run on copies of the packed operands in turn.

#include "prepack/gemm/onednn/repeated.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include "prepack/base/memory.h"
#include "prepack/gemm/onednn/engine.h"
#include "prepack/gemm/onednn/packed.h"

namespace prepack {
namespace {

PageBuffer CopyOf(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

// What a primitive reads of a module: memory of its own.
struct OperandCopy {
  explicit OperandCopy(const PackedOperands& packed)
      : weight(CopyOf(packed.weight)),
        scale(CopyOf(packed.scale)),
        zero_point(CopyOf(packed.zero_point)) {}

  void PutInto(PackedOperands& packed) const {
    packed.weight = weight;
    packed.scale = scale;
    packed.zero_point = zero_point;
  }

  PageBuffer weight;
  PageBuffer scale;
  PageBuffer zero_point;
};

class RepeatedPrimitive final : public RepeatedProduct {
 public:
  RepeatedPrimitive(dnnl::stream& stream, const PackedPlan& plan, const PackedProblem& problem)
      : stream_(stream),
        info_(plan.info),
        primitive_(plan.primitive),
        x_(problem.input.x.begin(), problem.input.x.end()),
        bias_(CopyOf(problem.packed.bias)),
        y_(problem.input.m * problem.packed.n) {}

  Status Prepare(const dnnl::engine& engine, const PackedPlan& plan, const PackedProblem& problem,
                 uint64_t copies) {
    // Copies stay where they are: arguments point to them.
    copies_.reserve(copies);
    PackedOperands operands = problem.packed;
    operands.bias = bias_;
    const PackedProblem own{.layout = problem.layout,
                            .request = problem.request,
                            .packed = operands,
                            .input = {.m = problem.input.m, .dtype = problem.input.dtype, .x = x_},
                            .repack = problem.repack};
    for (uint64_t copy = 0; copy < copies; ++copy) {
      copies_.emplace_back(problem.packed);
      copies_.back().PutInto(operands);
      if (copy == 0) {
        PREPACK_TRY_ASSIGN(PackedExecution execution,
                           PrepareExecution(engine, stream_, plan, own, y_));
        execution_ = std::move(execution);
        arguments_.push_back(execution_.arguments);
        continue;
      }
      OneDnnArguments arguments = execution_.arguments;
      PREPACK_TRY(SetWeights(engine, stream_, plan, own, arguments));
      arguments_.push_back(std::move(arguments));
    }
    return {};
  }

  const GemmInfo& info() const override { return info_; }

  Status Run() override {
    try {
      primitive_.execute(stream_, arguments_[next_]);
      stream_.wait();
    } catch (const std::exception&) {
      return CurrentOneDnnFailure("");
    }
    next_ = (next_ + 1) % arguments_.size();
    return {};
  }

 private:
  dnnl::stream& stream_;
  GemmInfo info_;
  dnnl::matmul primitive_;
  std::vector<float> x_;
  PageBuffer bias_;
  std::vector<float> y_;
  std::vector<OperandCopy> copies_;
  PackedExecution execution_;
  std::vector<OneDnnArguments> arguments_;  // by copy
  size_t next_ = 0;
};

}  // namespace

Result<std::unique_ptr<RepeatedProduct>> RepeatPacked(const dnnl::engine& engine,
                                                      dnnl::stream& stream,
                                                      const PackedProblem& problem,
                                                      uint64_t copies) {
  PREPACK_TRY_ASSIGN(const PackedPlan plan, PlanPacked(engine, problem));
  auto product = std::make_unique<RepeatedPrimitive>(stream, plan, problem);
  PREPACK_TRY(product->Prepare(engine, plan, problem, std::max<uint64_t>(copies, 1)));
  return std::unique_ptr<RepeatedProduct>(std::move(product));
}

}  // namespace prepack
