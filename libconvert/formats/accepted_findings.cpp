#include "formats/accepted_findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace prepack {
namespace {

constexpr std::array<std::string_view, 1> kAcceptable = {FindingId("scale-zero")};

thread_local const AcceptedFindings* accepted_here = nullptr;

}  // namespace

std::span<const std::string_view> AcceptableFindings() {
  return kAcceptable;
}

Result<AcceptedFindings> AcceptedFindings::Make(std::span<const std::string> names,
                                                std::string_view where) {
  AcceptedFindings accepted;
  for (const std::string& name : names) {
    if (std::ranges::count(kAcceptable, name) == 0) {
      return Usage(where, "this finding cannot be accepted")
          .Found(Printable(name))
          .Expected(fmt::format("{}", fmt::join(kAcceptable, ", ")));
    }
    accepted.names_.push_back(name);
  }
  std::ranges::sort(accepted.names_);
  const auto twins = std::ranges::unique(accepted.names_);
  accepted.names_.erase(twins.begin(), twins.end());
  return accepted;
}

bool AcceptedFindings::Has(FindingId id) const {
  return std::ranges::count(names_, std::string_view(id)) != 0;
}

AcceptanceScope::AcceptanceScope(const AcceptedFindings& accepted) : before_(accepted_here) {
  accepted_here = &accepted;
}

AcceptanceScope::~AcceptanceScope() {
  accepted_here = before_;
}

bool AcceptanceScope::Has(FindingId id) {
  return accepted_here != nullptr && accepted_here->Has(id);
}

}  // namespace prepack
