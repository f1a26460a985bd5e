#ifndef PREPACK_LAYOUTS_DOC_FORMULAS_H_
#define PREPACK_LAYOUTS_DOC_FORMULAS_H_

// Numbers of a layout as formulas: the one that holds for all example modules. So a formula in
// docs/layouts/ cannot disagree with the code, and one that is missing is an error.

#include <string>
#include <vector>

#include "prepack/layouts/layout.h"

namespace prepack::layouts_doc {

// One value per request. Empty when no formula fits.
std::string DimensionFormula(const std::vector<PackRequest>& requests,
                             const std::vector<uint64_t>& values);
// The same for units of channels, as in Division.
std::string UnitFormula(const std::vector<PackRequest>& requests,
                        const std::vector<uint64_t>& values);

// "always", "asymmetric weights", …: what the requests for which `holds` have in common, and the
// others have not. Empty when no text fits.
std::string ConditionFor(const std::vector<PackRequest>& requests, const std::vector<bool>& holds);

}  // namespace prepack::layouts_doc

#endif  // PREPACK_LAYOUTS_DOC_FORMULAS_H_
