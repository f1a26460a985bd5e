#pragma once

// Which layout of the target a module gets: every one is asked, in order of preference.

#include <optional>
#include <string>

#include "prepack/base/status.h"
#include "prepack/convert/plan.h"
#include "prepack/gemm/onednn/descriptor.h"
#include "prepack/layouts/layout.h"
#include "prepack/model/quantized_linear.h"

namespace prepack {

// A form for one module, and for kNative where it comes from.
struct ChosenForm {
  BlockedDesc weights_desc;
  std::optional<OneDnnOrigin> origin = {};

  // What the user should know of it; may be empty.
  std::string Note() const;
};

// For a module that onednn/w8a8 takes. Returns the errors of AskOneDnn.
Result<ChosenForm> ChooseOneDnnForm(OneDnnForm form, const PackRequest& request);

// The choice for modules like this one. Of the plan only what concerns all modules is looked at.
// Where oneDNN is to be asked for its form, the errors of AskOneDnn.
Result<LayoutChoice> ChooseLayout(const QuantizedLinear& linear, const PackRequest& asked,
                                  const PlanOptions& options, const Plan& plan);

}  // namespace prepack
