#ifndef PREPACK_BASE_CANCELLATION_H_
#define PREPACK_BASE_CANCELLATION_H_

namespace prepack {

// Asks running work to stop at the next panel, clean up and return kInterrupted. Safe to call from
// a signal handler; there is one flag for the process.
void RequestCancellation() noexcept;
bool CancellationRequested() noexcept;
// For tests: takes the request back, and what every look at it calls first (none: null).
void ResetCancellation() noexcept;
void SetCancellationHook(void (*hook)()) noexcept;

// While one lives there is something on the disk to clean up, so that a request to stop has to be
// waited for. Without one the process may end at once.
class OrderlyEnd {
 public:
  OrderlyEnd() noexcept;
  ~OrderlyEnd();
  OrderlyEnd(const OrderlyEnd&) = delete;
  OrderlyEnd& operator=(const OrderlyEnd&) = delete;

  // Does one live? Safe to call from a signal handler.
  static bool IsNeeded() noexcept;
};

}  // namespace prepack

#endif  // PREPACK_BASE_CANCELLATION_H_
