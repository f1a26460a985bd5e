#ifndef PREPACK_FORMATS_FOREIGN_METHODS_H_
#define PREPACK_FORMATS_FOREIGN_METHODS_H_

// Quantization methods that are known and not read: refused by name, with what to do instead.

#include <string_view>

#include "base/status.h"

namespace prepack {

// kUnsupported for any method; a known one is named properly. `where` is the place of the
// declaration, `known` what is read instead.
Status RefuseMethod(std::string_view method, std::string_view where, std::string_view known);

}  // namespace prepack

#endif  // PREPACK_FORMATS_FOREIGN_METHODS_H_
