#ifndef PREPACK_BASE_CANCELLATION_H_
#define PREPACK_BASE_CANCELLATION_H_

namespace prepack {

// Asks running work to stop at the next panel, clean up and return kInterrupted. Safe to call from
// a signal handler; there is one flag for the process.
void RequestCancellation() noexcept;
bool CancellationRequested() noexcept;
// For tests.
void ResetCancellation() noexcept;

}  // namespace prepack

#endif  // PREPACK_BASE_CANCELLATION_H_
