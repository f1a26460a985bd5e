#include "canonical/kept_order.h"

#include <utility>

namespace prepack {

Result<SharedOrder> KeptOrder::Get() const {
  thread_local SharedOrder last;
  const std::lock_guard lock(mutex_);
  SharedOrder order = order_.lock();
  if (order == nullptr) {
    Result<InputOrder> read = read_();
    if (!read.ok()) return read.status();
    order = std::make_shared<const InputOrder>(*std::move(read));
    order_ = order;
  }
  last = order;
  return order;
}

}  // namespace prepack
