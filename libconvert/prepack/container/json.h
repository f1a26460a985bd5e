#pragma once

// The JSON type of this project, and what its readers share. The handler below derives from a class
// of nlohmann's, so this header includes all of <nlohmann/json.hpp>.

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/function_ref.h"
#include "prepack/base/status.h"

namespace prepack {

// Object keys keep the order of the file: the order of config groups can carry meaning.
using Json = nlohmann::ordered_json;

// What our two readers of JSON share: a SAX handler that knows the byte offset, caps the depth and
// turns nlohmann's errors into ours. The parser keeps no recursion, so depth costs no stack.

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

// JSON that passes through. A DOM loses integers beyond 64 bits, -0, the spelling of numbers and
// escapes; here numbers and strings stay as they are written, and only the space between them
// changes. All texts must be valid (ParseJsonStrict has read them); NaN and Infinity are taken,
// too.

// A member of an object, in the text of the object.
struct TextMember {
  std::string key;
  std::string_view key_text;  // with quotes and escapes
  std::string_view value;
};

std::vector<TextMember> TextMembers(std::string_view object);

// The object without the member at the end of the path, keys from the outside to the inside; as it
// was when there is none.
std::string WithoutMember(std::string_view object, std::span<const std::string> path);

// The value in lines, as Python's json.dumps(indent=2) has it, inside `depth` containers.
std::string Reindented(std::string_view value, size_t depth);

// JSON that comes from a checkpoint. nlohmann's own DOM keeps the last of two equal keys and has
// no limit on depth; here a duplicate key, too much depth, too many values or trailing text is
// kMalformed, with the byte offset.

struct JsonLimits {
  size_t max_depth = 32;          // config.json of real models stays below 10
  size_t max_values = 4'000'000;  // an index of 1M tensors has 1M values
  // Are NaN, Infinity and -Infinity numbers? For JSON they are not, but Python writes and reads
  // them, so the configs of some models have them. Python also takes what is too large for a double
  // for infinity.
  bool python_numbers = false;
};

// Members of an object that are too many to be in memory at once: those of the root's member `of`,
// if that is an object. Each is handed over when it is complete, and is null in the result. What is
// wrong with the text behind it, or with its key, is not known by then.
struct JsonEntries {
  std::string_view of;
  FunctionRef<void(const std::string& key, const Json& value)> visit;
};

// `where` names the file, for the error.
Result<Json> ParseJsonStrict(std::string_view text, std::string_view where,
                             const JsonLimits& limits = {}, const JsonEntries* entries = nullptr);

// The member, or nullptr when it is absent or null. `object` may be any value: what is not an
// object has no members.
const Json* JsonMember(const Json& object, std::string_view key);

}  // namespace prepack
