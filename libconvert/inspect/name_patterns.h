#ifndef PREPACK_INSPECT_NAME_PATTERNS_H_
#define PREPACK_INSPECT_NAME_PATTERNS_H_

// Names that differ only in numbers, as one: `model.layers.{0..31}.mlp.down_proj`.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace prepack {

// Stands for every combination of the numbers in its braces, and for nothing else.
struct NamePattern {
  // "layers.{0,2..31}.experts.{0..7}.up_proj"; of a single name, that name, braces and all.
  std::string text;
  std::string first;  // of the names, along the depth of the model
  size_t names = 0;
};

// The patterns stand for exactly these names, each of them once; they come in the order of their
// first names along the depth of the model. The names must differ from each other. A name that has
// braces stands for itself. So does a number that is not written as numbers are (007), that has
// more than 18 digits, or that comes after eight others in the name.
std::vector<NamePattern> FoldNames(std::span<const std::string_view> names);

}  // namespace prepack

#endif  // PREPACK_INSPECT_NAME_PATTERNS_H_
