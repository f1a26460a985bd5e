#include "verify/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "canonical/scheme.h"

namespace prepack {

ModuleSample ChooseSample(const Manifest& manifest, const SampleChoice& choice) {
  using Ticket = std::pair<std::string, const std::string*>;  // hash, name
  std::map<std::string, std::vector<Ticket>> kinds;
  for (const auto& [name, record] : manifest.modules) {
    const std::string kind = fmt::format("{} {} {} {}", record.layout, record.n, record.k,
                                         DescribeScheme(record.scheme));
    kinds[kind].emplace_back(Xxh3Hex(fmt::format("{} {}", choice.seed, name)), &name);
  }
  ModuleSample sample;
  for (auto& [kind, tickets] : kinds) {
    std::ranges::sort(tickets);
    const double wanted = std::ceil(choice.fraction * static_cast<double>(tickets.size()));
    const size_t count = std::clamp<size_t>(static_cast<size_t>(wanted), 1, tickets.size());
    for (size_t i = 0; i < count; ++i) sample.insert(*tickets[i].second);
  }
  return sample;
}

}  // namespace prepack
