#ifndef PREPACK_TESTS_IO_FAULT_H_
#define PREPACK_TESTS_IO_FAULT_H_

// System calls that fail or are counted while an object lives: tests of what happens when the disk
// is full, a device breaks, or a file system cannot do something.

#include <array>
#include <atomic>
#include <cstddef>

#include "io/posix.h"

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

#endif  // PREPACK_TESTS_IO_FAULT_H_
