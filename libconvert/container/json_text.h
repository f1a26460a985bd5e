#ifndef PREPACK_CONTAINER_JSON_TEXT_H_
#define PREPACK_CONTAINER_JSON_TEXT_H_

// JSON that passes through. A DOM loses integers beyond 64 bits, -0, the spelling of numbers and
// escapes; here numbers and strings stay as they are written, and only the space between them
// changes. All texts must be valid (ParseJsonStrict has read them); NaN and Infinity are taken,
// too.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace prepack {

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

}  // namespace prepack

#endif  // PREPACK_CONTAINER_JSON_TEXT_H_
