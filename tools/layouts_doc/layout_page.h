#ifndef PREPACK_LAYOUTS_DOC_LAYOUT_PAGE_H_
#define PREPACK_LAYOUTS_DOC_LAYOUT_PAGE_H_

#include <string>

#include "prepack/base/status.h"
#include "prepack/layouts/layout.h"

namespace prepack::layouts_doc {

// "vllm-cpu-wna16.md"
std::string PageName(const Layout& layout);

// Who reads the bytes. Names of functions in the type of code.
std::string ConsumerText(const Layout& layout);

// The page of a layout. kUnsupported where a formula or the command that shows it is missing.
Result<std::string> LayoutPage(const Layout& layout);

}  // namespace prepack::layouts_doc

#endif  // PREPACK_LAYOUTS_DOC_LAYOUT_PAGE_H_
