#include "verify/fused_names.h"

#include <fmt/format.h>

namespace prepack {

std::vector<std::string> LayersByName(std::string_view module) {
  // Not taken from the table by which convert fuses: a mistake there is to be found here.
  struct Row {
    std::string_view whole;
    std::vector<std::string_view> layers;
  };
  static const std::vector<Row> kRows = {{"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
                                         {"gate_up_proj", {"gate_proj", "up_proj"}}};
  const std::string_view name = module.substr(module.rfind('.') + 1);
  const std::string_view parent = module.substr(0, module.size() - name.size());
  std::vector<std::string> layers;
  for (const Row& row : kRows) {
    if (row.whole != name) continue;
    for (const std::string_view layer : row.layers) {
      layers.push_back(fmt::format("{}{}", parent, layer));
    }
  }
  return layers;
}

}  // namespace prepack
