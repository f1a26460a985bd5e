#include "html/depth_order.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"

namespace prepack {
namespace {

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

// The number that `text` begins with, without zeros in front; taken off.
std::string_view TakeNumber(std::string_view& text) {
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  const size_t begin = std::min(text.find_first_not_of('0'), end);
  const std::string_view number = text.substr(begin, end - begin);
  text.remove_prefix(end);
  return number;
}

}  // namespace

bool IsShallower(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    if (IsDigit(a.front()) && IsDigit(b.front())) {
      const std::string_view first = TakeNumber(a);
      const std::string_view second = TakeNumber(b);
      if (first.size() != second.size()) return first.size() < second.size();
      if (first != second) return first < second;
      continue;
    }
    if (a.front() != b.front()) return a.front() < b.front();
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return a.size() < b.size();
}

std::vector<size_t> DepthOrder(const std::vector<std::string>& modules) {
  std::vector<size_t> order(modules.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order,
                           [&](size_t a, size_t b) { return IsShallower(modules[a], modules[b]); });
  return order;
}

size_t ModulesPerColumn(size_t count) {
  constexpr size_t kMostColumns = 1000;
  return std::max<size_t>(1, CeilDiv(count, kMostColumns));
}

std::string_view ModuleKind(std::string_view module) {
  const size_t dot = module.rfind('.');
  return dot == std::string_view::npos ? module : module.substr(dot + 1);
}

}  // namespace prepack
