#ifndef PREPACK_TESTS_IO_FAULT_H_
#define PREPACK_TESTS_IO_FAULT_H_

// A kind of system call that fails while an object lives: tests of what happens when the disk is
// full, a device breaks, or a file system cannot do something.

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

}  // namespace prepack::testing

#endif  // PREPACK_TESTS_IO_FAULT_H_
