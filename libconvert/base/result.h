#ifndef PREPACK_BASE_RESULT_H_
#define PREPACK_BASE_RESULT_H_

#include <cassert>
#include <optional>
#include <utility>

#include "base/status.h"

namespace prepack {

// A value, or the Status that says why there is none.
//
//   Result<Header> header = ReadHeader(file);
//   if (!header.ok()) return header.status();
//   Use(*header);
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    assert(!status_.ok() && "a Result without a value needs an error");
  }

  bool ok() const { return value_.has_value(); }
  // The error; an ok Status when there is a value.
  const Status& status() const& { return status_; }
  Status&& status() && { return std::move(status_); }

  // The accessors below require ok().
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return *std::move(value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace prepack

#endif  // PREPACK_BASE_RESULT_H_
