#ifndef PREPACK_CONVERT_MANIFEST_TEXT_H_
#define PREPACK_CONVERT_MANIFEST_TEXT_H_

#include <string_view>

namespace prepack {

// What stands between the hashed text of a manifest and its hash. Writer and reader share it.
inline constexpr std::string_view kManifestHashPrefix = ",\n  \"manifest_xxh3_128\": \"";

}  // namespace prepack

#endif  // PREPACK_CONVERT_MANIFEST_TEXT_H_
