#pragma once

// System calls that fail or are counted while an object lives: tests of what happens when the disk
// is full, a device breaks, or a file system cannot do something.

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <utility>

#include "prepack/io/posix.h"

namespace prepack::testing {

class IoFault {
 public:
  // `error` is the errno of every such call.
  IoFault(posix::Call call, int error) {
    call_ = call;
    error_ = error;
    posix::SetFaultHook([](posix::Call asked) { return asked == call_ ? error_ : 0; });
  }
  ~IoFault() { posix::SetFaultHook(nullptr); }
  IoFault(const IoFault&) = delete;
  IoFault& operator=(const IoFault&) = delete;

 private:
  static inline posix::Call call_ = posix::Call::kOpen;
  static inline int error_ = 0;
};

// Does something at the n-th system call of any kind, counted from 0. What that gives is the errno
// of the call; 0: it goes on.
class AtCall {
 public:
  AtCall(size_t n, std::function<int()> work) {
    n_ = n;
    calls_ = 0;
    work_ = std::move(work);
    posix::SetFaultHook([](posix::Call) { return calls_++ == n_ ? work_() : 0; });
  }
  ~AtCall() { posix::SetFaultHook(nullptr); }
  AtCall(const AtCall&) = delete;
  AtCall& operator=(const AtCall&) = delete;

  static bool Happened() { return calls_ > n_; }

 private:
  static inline size_t n_ = 0;
  static inline std::atomic<size_t> calls_ = 0;
  static inline std::function<int()> work_;
};

// Counts system calls while it lives.
class CallCounter {
 public:
  CallCounter() {
    for (std::atomic<size_t>& count : counts_) count = 0;
    posix::SetFaultHook([](posix::Call call) {
      ++counts_[static_cast<size_t>(call)];
      return 0;
    });
  }
  ~CallCounter() { posix::SetFaultHook(nullptr); }
  CallCounter(const CallCounter&) = delete;
  CallCounter& operator=(const CallCounter&) = delete;

  size_t Of(posix::Call call) const { return counts_[static_cast<size_t>(call)]; }

 private:
  static inline std::array<std::atomic<size_t>, 32> counts_;
};

}  // namespace prepack::testing
