#include "findings.h"

#include <fmt/format.h>

namespace prepack::cli {

std::string FindingsText(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text +=
        fmt::format("note: {}: {}\n", Printable(finding.where), Printable(finding.message, 1000));
  }
  return text;
}

}  // namespace prepack::cli
