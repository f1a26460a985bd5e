#pragma once

// How libconvert reports failure. The library never throws on purpose, never prints and never ends
// the process: every operation that can fail returns a Status, or a Result<T> (below).
//
// A Status says where (file, tensor, field), what, what was found, what was expected, and what the
// user can do. Its kind maps one-to-one to an exit code of the tool (ExitCode below).

#include <cassert>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace prepack {

// Kinds of failure. The values are the exit codes of the command line tool and are documented
// there; never renumber them.
enum class ErrorKind : int {
  kCheckFailed = 1,    // a check ran and found something bad
  kUsage = 2,          // the caller asked for something that makes no sense
  kMalformed = 3,      // the input is broken or contradicts itself
  kSystem = 4,         // I/O, memory, disk full
  kUnsupported = 5,    // the input is sound, but this format, scheme or layout is not supported
  kUnavailable = 6,    // a check cannot run here: an instruction set or a library is missing
  kInterrupted = 130,  // the user asked us to stop
};

// Success, or one error. Success holds no memory: returning it costs a null pointer.
class [[nodiscard]] Status {
 public:
  Status() = default;

  // `where` names the place from the outside in: "model.safetensors: tensor a.b: shape".
  Status(ErrorKind kind, std::string_view where, std::string_view what);

  Status(const Status& other);
  Status& operator=(const Status& other);
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;
  ~Status() = default;

  bool ok() const { return error_ == nullptr; }

  // Builder steps; each returns the same status, so that an error reads as one expression:
  //   return Malformed(file, "the header is longer than the file").Found(n).Expected(...);
  Status& Found(std::string_view text) &;
  Status&& Found(std::string_view text) &&;
  Status& Expected(std::string_view text) &;
  Status&& Expected(std::string_view text) &&;
  Status& Hint(std::string_view text) &;
  Status&& Hint(std::string_view text) &&;
  // A stable identifier of this very problem, for reports that scripts read; see
  // formats/finding.h. Not part of the text.
  Status&& Id(std::string_view text) &&;
  // Puts an outer place in front of `where`, e.g. the file, once it is known.
  Status&& In(std::string_view outer) &&;

  // The accessors below require !ok().
  ErrorKind kind() const { return error_->kind; }
  const std::string& where() const { return error_->where; }
  const std::string& what() const { return error_->what; }
  const std::string& found() const { return error_->found; }
  const std::string& expected() const { return error_->expected; }
  const std::string& hint() const { return error_->hint; }
  const std::string& id() const { return error_->id; }  // empty: none was given

  // "WHERE: WHAT (found …, expected …). HINT", on one line: control characters that come from a
  // hostile file are shown as \xNN. Empty when ok().
  std::string ToString() const;

 private:
  struct Error {
    ErrorKind kind;
    std::string where;
    std::string what;
    std::string found;
    std::string expected;
    std::string hint;
    std::string id;
  };
  std::unique_ptr<Error> error_;
};

Status CheckFailed(std::string_view where, std::string_view what);
Status Usage(std::string_view where, std::string_view what);
Status Malformed(std::string_view where, std::string_view what);
Status Unsupported(std::string_view where, std::string_view what);
Status Unavailable(std::string_view where, std::string_view what);
Status Interrupted(std::string_view where);

// A failed system call: `errnum` is errno at the time. "disk full" and "permission denied" carry a
// hint that says what to do.
Status SystemError(std::string_view where, std::string_view what, int errnum);

// The exit code of the tool for this status; 0 when ok().
int ExitCode(const Status& status);

// `text` with control characters and invalid bytes as \xNN, cut at `max_bytes` with an ellipsis.
// For showing names that come from a file.
std::string Printable(std::string_view text, size_t max_bytes = 200);

// The text of a JSON document in which all that Printable would not show stands as \uNNNN: only
// strings can hold it, and they mean the same.
std::string PrintableJson(std::string_view json);

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

// Hands an error on to the caller; goes on if there is none. The second declares a variable and
// gives it the value.
//
//   PREPACK_TRY(file.Read(offset, bytes));
//   PREPACK_TRY_ASSIGN(const Header header, ReadHeader(file));
//
// The function that they stand in returns Status or Result. A type with a comma would be two
// arguments: write auto instead.
#define PREPACK_TRY(...) PREPACK_TRY_IMPL(PREPACK_UNIQUE(try_status_), __VA_ARGS__)
#define PREPACK_TRY_ASSIGN(variable, ...) \
  PREPACK_TRY_ASSIGN_IMPL(PREPACK_UNIQUE(try_result_), variable, __VA_ARGS__)

#define PREPACK_TRY_IMPL(status, ...)                                          \
  do {                                                                         \
    if (::prepack::Status status = (__VA_ARGS__); !status.ok()) return status; \
  } while (false)
#define PREPACK_TRY_ASSIGN_IMPL(result, variable, ...) \
  auto result = (__VA_ARGS__);                         \
  if (!result.ok()) return std::move(result).status(); \
  variable = *std::move(result)
// A name for every use, because one may stand in a lambda that is an argument of another.
#define PREPACK_UNIQUE(name) PREPACK_JOIN(name, __COUNTER__)
#define PREPACK_JOIN(a, b) PREPACK_JOIN_IMPL(a, b)
#define PREPACK_JOIN_IMPL(a, b) a##b
