#include "formats/plain_modules.h"

#include <set>

#include "formats/layer_names.h"
#include "formats/module_tensors.h"

namespace prepack {
namespace {

// "model.layers" of model.layers.3.mlp.up_proj; empty for what lies in no list.
std::string_view ListOf(std::string_view module) {
  const auto layer = ParseLayerName(module);
  return layer ? layer->list : std::string_view();
}

}  // namespace

void PlainModules::Report(const QuantizedModel& model, FindingTally& findings) const {
  if (modules_.empty()) return;
  std::set<std::string_view> quantized;
  for (const auto& linear : model.modules) {
    if (!IsOutputHead(linear->module())) quantized.insert(ListOf(linear->module()));
  }
  // Layers that could not be read are quantized, too, but then the model has an error.
  for (const auto& [module, message] : modules_) {
    if (quantized.contains(ListOf(module))) {
      findings.Add("module-targeted-but-plain", module, message);
    }
  }
}

}  // namespace prepack
