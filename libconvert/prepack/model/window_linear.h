#pragma once

// Some output and input channels of a module as a module of its own.

#include <memory>
#include <string_view>

#include "prepack/base/status.h"
#include "prepack/model/panel.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

// The module must have one group, which is then that of the window, no activation order, and no
// bias that is stacked; else, or where the window is not inside it, kUnsupported. The whole must
// outlive the window. Its source tensors are those of the whole, of its bytes it has a share.
Result<std::unique_ptr<QuantizedLinear>> TakeWindow(const QuantizedLinear& whole,
                                                    std::string_view module,
                                                    const PanelRange& window);

}  // namespace prepack
