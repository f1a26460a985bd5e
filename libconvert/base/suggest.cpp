#include "base/suggest.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace prepack {
namespace {

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string DidYouMean(std::string_view wanted, std::span<const std::string> known) {
  constexpr size_t kMaxNameBytes = 512;  // a longer name is not a slip of the hand
  if (wanted.empty() || wanted.size() > kMaxNameBytes) return "";
  const std::string* best = nullptr;
  size_t best_distance = std::max<size_t>(2, wanted.size() / 3) + 1;
  for (const std::string& name : known) {
    if (name.size() > kMaxNameBytes) continue;
    const size_t distance = EditDistance(wanted, name);
    if (distance < best_distance) {
      best_distance = distance;
      best = &name;
    }
  }
  return best == nullptr ? "" : "Did you mean " + *best + "?";
}

}  // namespace prepack
