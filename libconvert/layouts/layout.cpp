#include "layouts/layout.h"

#include <fmt/format.h>

namespace prepack {

DType ScaleDType(const Layout& layout, const PackRequest& request) {
  for (const PartSpec& part : layout.parts(request)) {
    if (part.role == PartRole::kScale) return part.dtype;
  }
  return DType::kF32;
}

std::string ScaleRounding(DType stored, DType packed) {
  if (stored == packed || packed == DType::kF32) return "none";
  return fmt::format("{} to {}, nearest even", DTypeName(stored), DTypeName(packed));
}

}  // namespace prepack
