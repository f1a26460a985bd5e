#ifndef PREPACK_CANONICAL_KEPT_ORDER_H_
#define PREPACK_CANONICAL_KEPT_ORDER_H_

// The order of a module's input channels, which is 4·K bytes: too much to keep for every module of
// a large model. It is read when it is needed, and kept for as long as a thread works on the
// module.

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"

namespace prepack {

// A permutation of [0, K).
using InputOrder = std::vector<uint32_t>;
using SharedOrder = std::shared_ptr<const InputOrder>;

class KeptOrder {
 public:
  using Read = std::function<Result<InputOrder>()>;

  explicit KeptOrder(Read read) : read_(std::move(read)) {}

  // From any thread. Each thread keeps the last order that it got.
  Result<SharedOrder> Get() const;

 private:
  Read read_;
  mutable std::mutex mutex_;
  mutable std::weak_ptr<const InputOrder> order_;
};

}  // namespace prepack

#endif  // PREPACK_CANONICAL_KEPT_ORDER_H_
