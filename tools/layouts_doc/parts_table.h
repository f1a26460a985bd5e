#ifndef PREPACK_LAYOUTS_DOC_PARTS_TABLE_H_
#define PREPACK_LAYOUTS_DOC_PARTS_TABLE_H_

#include <string>

#include "prepack/base/status.h"
#include "prepack/layouts/layout.h"

namespace prepack::layouts_doc {

// The parts of a layout as a table in Markdown: shapes and units as formulas that hold for all
// example modules. kUnsupported when formulas.h lacks one.
Result<std::string> PartsTable(const Layout& layout);

}  // namespace prepack::layouts_doc

#endif  // PREPACK_LAYOUTS_DOC_PARTS_TABLE_H_
