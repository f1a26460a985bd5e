#pragma once

#include <string>
#include <vector>

namespace prepack {

// Arguments or an environment as exec wants them, null at the end; the strings must live longer.
inline std::vector<char*> ExecPointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace prepack
