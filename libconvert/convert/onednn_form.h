#ifndef PREPACK_CONVERT_ONEDNN_FORM_H_
#define PREPACK_CONVERT_ONEDNN_FORM_H_

// In which form onednn/w8a8 writes its weights: what oneDNN's primitive asks for depends on the CPU
// that runs it, which need not be the one that packs.

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "gemm/onednn_descriptor.h"
#include "layouts/layout.h"

namespace prepack {

enum class OneDnnForm : uint8_t {
  kBlocked,  // what CPUs with AVX-512 VNNI want, whatever this one is
  kPlain,    // row-major [K, N] without sums, what CPUs without it want
  kNative,   // what the primitive asks for on this machine
};

// A form for one module, and for kNative where it comes from.
struct ChosenForm {
  BlockedDesc weights_desc;
  std::optional<OneDnnOrigin> origin = {};

  // What the user should know of it; may be empty.
  std::string Note() const;
};

// For a module that onednn/w8a8 takes. The errors are those of AskOneDnn.
Result<ChosenForm> ChooseOneDnnForm(OneDnnForm form, const PackRequest& request);

}  // namespace prepack

#endif  // PREPACK_CONVERT_ONEDNN_FORM_H_
