#include "prepack/check/model_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "prepack/check/config_shapes.h"
#include "prepack/check/finding_list.h"
#include "prepack/check/missing_numbers.h"
#include "prepack/container/model_config.h"
#include "prepack/formats/model_parts.h"
#include "prepack/model/module_name.h"

namespace prepack {
void CheckLayers(const Checkpoint& checkpoint, std::vector<Finding>& findings) {
  const std::optional<uint64_t> layers =
      CountOf(LanguageConfig(checkpoint.config()), "num_hidden_layers");
  const std::string_view list = FindDecoderList(checkpoint);
  std::set<uint64_t> present;
  for (const StoredTensor& tensor : checkpoint.tensors()) {
    if (const auto layer = ParseLayerName(tensor.name); layer && layer->list == list) {
      present.insert(layer->index);
    }
  }
  if (!layers || present.empty()) return;
  if (const MissingNumbers missing = MissingBelow(*layers, present); missing.count != 0) {
    findings.push_back(MakeFinding("layer-missing", "config.json: num_hidden_layers",
                                   fmt::format("{} of {} layers have no tensor: {}", missing.count,
                                               *layers, ShowMissing(missing))));
  }
  if (*present.rbegin() >= *layers) {
    findings.push_back(MakeFinding(
        "layer-unknown", "config.json: num_hidden_layers",
        fmt::format("there is a layer {}, but config.json counts {}", *present.rbegin(), *layers)));
  }
}

}  // namespace prepack
