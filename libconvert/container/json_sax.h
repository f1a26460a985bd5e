#ifndef PREPACK_CONTAINER_JSON_SAX_H_
#define PREPACK_CONTAINER_JSON_SAX_H_

// What our two readers of JSON share: a SAX handler that knows the byte offset, caps the depth and
// turns nlohmann's errors into ours. The parser keeps no recursion, so depth costs no stack.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"
#include "container/json.h"

namespace prepack {

class JsonSax : public nlohmann::json_sax<Json> {
 public:
  // Parses all of `text`; `where` names it in errors. To be called once.
  Status Run(std::string_view text, std::string_view where);

 protected:
  explicit JsonSax(size_t max_depth) : max_depth_(max_depth) {}

  const std::string& where() const { return where_; }
  // Bytes read so far: the offset behind the token that the handler is called for; one more for a
  // number, which ends where something else begins.
  size_t offset() const { return static_cast<size_t>(position_ - begin_); }
  // Containers that are open.
  size_t depth() const { return depth_; }

  // To be called (and its result obeyed) for every container that begins or ends.
  bool Enter();
  void Leave() { --depth_; }

  // Stops the parser with this error; always false.
  bool Fail(Status status);
  // The same at the current byte: "WHERE: byte N: WHAT".
  bool FailHere(std::string_view what);

 private:
  bool parse_error(size_t position, const std::string& last_token,
                   const nlohmann::detail::exception& error) final;
  bool binary(binary_t& value) final;  // never called for text

  size_t max_depth_;
  size_t depth_ = 0;
  std::string where_;
  const char* begin_ = nullptr;
  const char* position_ = nullptr;
  Status status_;
};

}  // namespace prepack

#endif  // PREPACK_CONTAINER_JSON_SAX_H_
