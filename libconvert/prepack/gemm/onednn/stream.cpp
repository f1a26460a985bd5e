#include "prepack/gemm/onednn/stream.h"

#if DNNL_CPU_RUNTIME == DNNL_RUNTIME_THREADPOOL

#include <atomic>
#include <cstdint>
#include <dnnl_threadpool.hpp>
#include <functional>
#include <thread>
#include <vector>

#include "prepack/base/parallel.h"

namespace prepack {
namespace {

// Is this thread inside of a task? oneDNN then goes on alone.
thread_local bool inside_task = false;

// Threads that do the tasks of one product at a time, together with the thread that asks for it.
class Threads final : public dnnl::threadpool_interop::threadpool_iface {
 public:
  explicit Threads(unsigned count) {
    for (unsigned thread = 1; thread < count; ++thread) {
      helpers_.emplace_back([this] { Help(); });
    }
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads() override {
    stopped_ = true;
    NextRound();
    for (std::thread& helper : helpers_) helper.join();
  }

  int get_num_threads() const override { return static_cast<int>(helpers_.size()) + 1; }
  bool get_in_parallel() const override { return inside_task; }
  uint64_t get_flags() const override { return 0; }

  // One call at a time. Returns when every task is done and no helper looks at them any more.
  void parallel_for(int count, const std::function<void(int, int)>& task) override {
    task_ = &task;
    count_ = count;
    next_ = 0;
    busy_ = helpers_.size();
    NextRound();
    DoTasks();
    for (size_t busy = busy_; busy != 0; busy = busy_) busy_.wait(busy);
  }

 private:
  void NextRound() {
    ++round_;
    round_.notify_all();
  }

  void Help() {
    for (uint32_t seen = 0;; ++seen) {
      round_.wait(seen);
      if (stopped_) return;
      DoTasks();
      if (--busy_ == 0) busy_.notify_one();
    }
  }

  void DoTasks() {
    inside_task = true;
    for (int index = next_++; index < count_; index = next_++) (*task_)(index, count_);
    inside_task = false;
  }

  const std::function<void(int, int)>* task_ = nullptr;
  int count_ = 0;
  std::atomic<int> next_ = 0;
  std::atomic<size_t> busy_ = 0;     // helpers that have not ended this round
  std::atomic<uint32_t> round_ = 0;  // all above is set before it grows
  std::atomic<bool> stopped_ = false;
  std::vector<std::thread> helpers_;
};

}  // namespace

dnnl::stream MakeStream(const dnnl::engine& engine) {
  static Threads threads(ThreadCount(0));
  return dnnl::threadpool_interop::make_stream(engine, &threads);
}

}  // namespace prepack

#else

namespace prepack {

dnnl::stream MakeStream(const dnnl::engine& engine) {
  return dnnl::stream(engine);
}

}  // namespace prepack

#endif
