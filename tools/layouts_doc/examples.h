#ifndef PREPACK_LAYOUTS_DOC_EXAMPLES_H_
#define PREPACK_LAYOUTS_DOC_EXAMPLES_H_

// The modules that docs/layouts/ is derived from.

#include <vector>

#include "prepack/layouts/layout.h"

namespace prepack::layouts_doc {

// Every kind of module that the layout takes, in one size or another, and with every kind of
// activations. All have a bias and an order of inputs, so that no part is missing.
std::vector<PackRequest> Examples(const Layout& layout);

// The module that is drawn: a small one, where the layout takes it with N = 100, so that padding
// shows.
PackRequest DrawnExample(const Layout& layout);

}  // namespace prepack::layouts_doc

#endif  // PREPACK_LAYOUTS_DOC_EXAMPLES_H_
