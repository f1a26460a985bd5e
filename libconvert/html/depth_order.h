#ifndef PREPACK_HTML_DEPTH_ORDER_H_
#define PREPACK_HTML_DEPTH_ORDER_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace prepack {

// Whether module `a` comes before `b` along the depth of the model: layer 2 before layer 10.
bool IsShallower(std::string_view a, std::string_view b);

// The indices of `modules` along the depth of the model.
std::vector<size_t> DepthOrder(const std::vector<std::string>& modules);

// How many neighbours along the depth of `count` modules share a column of a chart: more columns
// than some 1000 cannot be told apart, and a page has to be opened.
size_t ModulesPerColumn(size_t count);

// The kind of a module, by which modules of different layers are alike: "q_proj".
std::string_view ModuleKind(std::string_view module);

}  // namespace prepack

#endif  // PREPACK_HTML_DEPTH_ORDER_H_
