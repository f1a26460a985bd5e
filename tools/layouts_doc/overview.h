#ifndef PREPACK_LAYOUTS_DOC_OVERVIEW_H_
#define PREPACK_LAYOUTS_DOC_OVERVIEW_H_

#include <string>

namespace prepack::layouts_doc {

// docs/layouts/README.md: what all layouts have in common, and a table of them.
std::string Overview();

}  // namespace prepack::layouts_doc

#endif  // PREPACK_LAYOUTS_DOC_OVERVIEW_H_
