#include "prepack/verify/input_cache.h"

#include <algorithm>
#include <utility>

#include "prepack/layouts/layout.h"
#include "prepack/verify/packed_operands.h"
#include "prepack/verify/truth.h"

namespace prepack {
namespace {

// Are the module's activations those of every such module?
bool AreShared(const PackedModule& packed, const Checkpoint* recorded,
               const std::optional<InputSlab>& slab) {
  return recorded == nullptr && !slab && packed.request().scheme.activations.dynamic &&
         FindPart(packed.parts(), PartRole::kInputOrder) == nullptr;
}

}  // namespace

bool InputCache::Keeps(const PackedModule& packed, const Checkpoint* recorded) const {
  return AreShared(packed, recorded, std::nullopt) &&
         BytesOfInputs(packed.request().k, false) <= most_kept_;
}

Result<std::shared_ptr<const GemmInputs>> InputCache::Inputs(const PackedModule& packed,
                                                             const SecondDecoder& source,
                                                             const Checkpoint* recorded,
                                                             const std::optional<InputSlab>& slab) {
  const DType dtype = InputDType(packed);
  if (!AreShared(packed, recorded, slab)) {
    PREPACK_TRY_ASSIGN(GemmInputs own, GemmInputs::Make(packed, source, dtype, recorded, slab));
    return std::make_shared<const GemmInputs>(std::move(own));
  }
  const Key key{.layout = packed.layout().id,
                .scheme = packed.request().scheme,
                .k = packed.request().k,
                .dtype = dtype};
  const std::shared_ptr<Entry> entry = FindOrAdd(key);
  const std::lock_guard lock(entry->mutex);
  if (!entry->inputs) {
    PREPACK_TRY_ASSIGN(GemmInputs inputs, GemmInputs::Make(packed, source, dtype, nullptr));
    entry->inputs = std::move(inputs);
  }
  return std::shared_ptr<const GemmInputs>(entry, &*entry->inputs);
}

Result<std::shared_ptr<const std::vector<double>>> InputCache::KernelRows(
    const std::shared_ptr<const GemmInputs>& inputs,
    const std::function<Result<const KernelModel*>()>& dense) {
  const auto make = [&]() -> Result<std::shared_ptr<const std::vector<double>>> {
    PREPACK_TRY_ASSIGN(const KernelModel* model, dense());
    return std::make_shared<const std::vector<double>>(DenseRowsOfKernel(*inputs, *model));
  };
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    for (const Known& known : known_) {
      std::shared_ptr<Entry> other = known.entry.lock();
      // An entry and its inputs are owned together.
      if (other && !other.owner_before(inputs) && !inputs.owner_before(other)) entry = other;
    }
  }
  if (!entry) return make();
  const std::lock_guard lock(entry->mutex);
  if (!entry->kernel_rows) {
    PREPACK_TRY_ASSIGN(entry->kernel_rows, make());
  }
  return entry->kernel_rows;
}

std::shared_ptr<InputCache::Entry> InputCache::FindOrAdd(const Key& key) {
  const std::lock_guard lock(mutex_);
  std::erase_if(known_, [](const Known& known) { return known.entry.expired(); });
  const auto known = std::ranges::find(known_, key, &Known::key);
  std::shared_ptr<Entry> entry = known == known_.end() ? nullptr : known->entry.lock();
  if (!entry) {
    entry = std::make_shared<Entry>();
    entry->k = key.k;
    known_.push_back({.key = key, .entry = entry});
  }
  Keep(entry);
  return entry;
}

// As the last one, and of the others those that were used last, as far as there is room.
void InputCache::Keep(const std::shared_ptr<Entry>& entry) {
  std::erase(kept_, entry);
  kept_.push_back(entry);
  uint64_t left = most_kept_;
  auto first = kept_.end();
  while (first != kept_.begin()) {
    const uint64_t own = BytesOfInputs((*std::prev(first))->k, false);
    if (own > left) break;
    left -= own;
    --first;
  }
  kept_.erase(kept_.begin(), first);
}

}  // namespace prepack
