#include "convert/onednn_form.h"

#include <fmt/format.h>

#include "layouts/onednn_w8a8.h"

namespace prepack {

std::string ChosenForm::Note() const {
  if (!origin || !origin->IsReference()) return "";
  return fmt::format(
      "oneDNN {} has only a reference implementation for this on this machine ({}): right, but "
      "slow",
      origin->version, origin->implementation);
}

Result<ChosenForm> ChooseOneDnnForm(OneDnnForm form, const PackRequest& request) {
  if (form == OneDnnForm::kBlocked) return ChosenForm{.weights_desc = DefaultW8A8Desc(request)};
  if (form == OneDnnForm::kPlain) {
    return ChosenForm{.weights_desc = PlainDesc(request.k, request.n)};
  }
  Result<OneDnnAnswer> answer = AskOneDnn(request);
  if (!answer.ok()) return answer.status();
  return ChosenForm{.weights_desc = answer->weights_desc, .origin = answer->origin};
}

}  // namespace prepack
