#include "prepack/gemm/onednn/engine.h"

#include <fmt/format.h>

#include <dnnl.hpp>
#include <exception>
#include <mutex>
#include <new>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/gemm/engine.h"
#include "prepack/gemm/onednn/packed.h"
#include "prepack/gemm/onednn/query.h"
#include "prepack/gemm/onednn/repeated.h"
#include "prepack/gemm/onednn/stream.h"

namespace prepack {

Status CurrentOneDnnFailure(std::string_view hint) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return {ErrorKind::kSystem, "oneDNN", "out of memory"};
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) {
      return {ErrorKind::kSystem, "oneDNN", "out of memory"};
    }
    return Unavailable("oneDNN", error.what()).Hint(hint);
  } catch (const std::exception& error) {
    return Unavailable("oneDNN", error.what()).Hint(hint);
  }
}

// oneDNN's matmul primitive on the CPU.
namespace {

using dnnl::memory;

constexpr std::string_view kNothingElse = "Its kernels cannot be measured here";
constexpr std::string_view kOtherEngine = "--engine reference multiplies without oneDNN";

class OneDnnEngine final : public GemmEngine {
 public:
  OneDnnEngine() : engine_(dnnl::engine::kind::cpu, 0), stream_(MakeStream(engine_)) {}

  std::string name() const override {
    const dnnl_version_t* version = dnnl_version();
    return fmt::format("onednn {}.{}.{}", version->major, version->minor, version->patch);
  }

  Result<GemmInfo> MultiplyFloats(const FloatProblem& problem, std::span<float> y) override {
    PREPACK_TRY(CheckProblem(problem, y));
    const std::lock_guard lock(mutex_);
    try {
      return MultiplyFloatsOrThrow(problem, y);
    } catch (const std::exception&) {
      return CurrentOneDnnFailure(kOtherEngine);
    }
  }

  Result<GemmInfo> MultiplyPacked(const PackedProblem& problem, std::span<float> y) override {
    const std::lock_guard lock(mutex_);
    try {
      PREPACK_TRY_ASSIGN(PackedPlan plan, plans_.PlanFor(engine_, problem));
      PREPACK_TRY(RunPacked(engine_, stream_, plan, problem, y));
      return std::move(plan.info);
    } catch (const std::exception&) {
      return CurrentOneDnnFailure(kOtherEngine);
    }
  }

  Result<GemmInfo> DescribePacked(const PackedProblem& problem) override {
    const std::lock_guard lock(mutex_);
    try {
      PREPACK_TRY_ASSIGN(PackedPlan plan, plans_.PlanFor(engine_, problem));
      return std::move(plan.info);
    } catch (const std::exception&) {
      return CurrentOneDnnFailure(kOtherEngine);
    }
  }

  Result<std::unique_ptr<RepeatedProduct>> Repeat(const PackedProblem& problem,
                                                  uint64_t copies) override {
    const std::lock_guard lock(mutex_);
    try {
      return RepeatPacked(engine_, stream_, problem, copies);
    } catch (const std::exception&) {
      return CurrentOneDnnFailure(kNothingElse);
    }
  }

 private:
  // The last shape that was multiplied: experts of a mixture have one by the thousand.
  struct FloatPlan {
    uint64_t m = 0;
    uint64_t n = 0;
    uint64_t k = 0;
    dnnl::matmul::primitive_desc description;
    dnnl::matmul primitive;
    GemmInfo info;
  };

  const FloatPlan& PlanFor(const FloatProblem& problem);
  GemmInfo MultiplyFloatsOrThrow(const FloatProblem& problem, std::span<float> y);

  std::mutex mutex_;
  FloatPlan floats_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  KnownPlans plans_;
};

// oneDNN takes pointers without const; it does not write to inputs.
void* Pointer(std::span<const float> data) {
  return const_cast<void*>(static_cast<const void*>(data.data()));
}

const OneDnnEngine::FloatPlan& OneDnnEngine::PlanFor(const FloatProblem& problem) {
  if (floats_.m == problem.m && floats_.n == problem.n && floats_.k == problem.k) return floats_;
  const auto f32 = [](uint64_t rows, uint64_t columns, memory::format_tag tag) {
    return memory::desc({Dim(rows), Dim(columns)}, memory::data_type::f32, tag);
  };
  const dnnl::matmul::primitive_desc description(engine_,
                                                 f32(problem.m, problem.k, memory::format_tag::ab),
                                                 f32(problem.k, problem.n, memory::format_tag::ba),
                                                 f32(problem.m, problem.n, memory::format_tag::ab));
  floats_ = {.m = problem.m,
             .n = problem.n,
             .k = problem.k,
             .description = description,
             .primitive = dnnl::matmul(description),
             .info = {.implementation = description.impl_info_str(), .activation_type = "f32"}};
  return floats_;
}

GemmInfo OneDnnEngine::MultiplyFloatsOrThrow(const FloatProblem& problem, std::span<float> y) {
  const FloatPlan& plan = PlanFor(problem);
  plan.primitive.execute(
      stream_,
      {{DNNL_ARG_SRC, memory(plan.description.src_desc(), engine_, Pointer(problem.x))},
       {DNNL_ARG_WEIGHTS, memory(plan.description.weights_desc(), engine_, Pointer(problem.w))},
       {DNNL_ARG_DST, memory(plan.description.dst_desc(), engine_, y.data())}});
  stream_.wait();
  return plan.info;
}

}  // namespace

}  // namespace prepack

void PREPACK_ONEDNN_ENGINE_ENTRY(prepack::Result<std::unique_ptr<prepack::GemmEngine>>& engine) {
  prepack::PrepareOneDnnRuntime();
  try {
    engine = std::unique_ptr<prepack::GemmEngine>(std::make_unique<prepack::OneDnnEngine>());
  } catch (const std::exception&) {
    engine = prepack::CurrentOneDnnFailure(prepack::kOtherEngine);
  }
}
