#include "inspect/shown_module.h"

#include <utility>

namespace prepack {

Result<ShownModule> FindShown(const OpenedFolder& folder, std::string_view module) {
  if (!folder.packed) {
    const Result<const QuantizedLinear*> linear = FindSourceModule(folder, module);
    if (!linear.ok()) return linear.status();
    return ShownModule{
        .linear = *linear, .n = (*linear)->n(), .k = (*linear)->k(), .form = folder.model->format};
  }
  const Result<PackedModuleName> name = FindPackedModule(folder, module);
  if (!name.ok()) return name.status();
  Result<PackedModule> packed =
      PackedModule::Open(*folder.packed, *name->name, *name->record, Isa::kScalar);
  if (!packed.ok()) return packed.status();
  return ShownModule{.packed = *std::move(packed),
                     .first = name->first,
                     .n = name->n,
                     .k = name->record->k,
                     .form = name->record->layout};
}

}  // namespace prepack
