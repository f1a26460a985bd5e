#include "prepack/verify/input_cache.h"

#include <utility>

#include "prepack/layouts/layout.h"
#include "prepack/verify/packed_operands.h"
#include "prepack/verify/truth.h"

namespace prepack {
namespace {

// Are the module's dense rows drawn as those of every module of its K?
bool AreDrawnAlike(const PackedModule& packed, const std::optional<InputSlab>& slab) {
  return !slab && packed.request().scheme.activations.dynamic;
}

// Are the module's activations those of every such module?
bool AreShared(const PackedModule& packed, const Checkpoint* recorded,
               const std::optional<InputSlab>& slab) {
  return recorded == nullptr && AreDrawnAlike(packed, slab) &&
         FindPart(packed.parts(), PartRole::kInputOrder) == nullptr;
}

}  // namespace

bool InputCache::Keeps(const PackedModule& packed, const Checkpoint* recorded) const {
  return AreShared(packed, recorded, std::nullopt) &&
         BytesOfInputs(packed.request().k, false) <= entries_.most_kept();
}

std::shared_ptr<const DrawnRows> InputCache::Drawn(uint64_t k) {
  const std::shared_ptr<DrawnEntry> entry =
      drawn_.FindOrAdd(k, (kGaussianRows + kOutlierRows) * k * sizeof(double));
  const std::lock_guard lock(entry->mutex);
  if (!entry->rows) entry->rows = GemmInputs::DrawFor(k);
  return {entry, &*entry->rows};
}

Result<std::shared_ptr<const GemmInputs>> InputCache::Inputs(const PackedModule& packed,
                                                             const SecondDecoder& source,
                                                             const Checkpoint* recorded,
                                                             const std::optional<InputSlab>& slab) {
  const DType dtype = InputDType(packed);
  if (!AreShared(packed, recorded, slab)) {
    auto drawn = AreDrawnAlike(packed, slab) ? Drawn(packed.request().k) : nullptr;
    PREPACK_TRY_ASSIGN(GemmInputs own,
                       GemmInputs::Make(packed, source, dtype, recorded, slab, std::move(drawn)));
    return std::make_shared<const GemmInputs>(std::move(own));
  }
  const Key key{.layout = packed.layout().id,
                .scheme = packed.request().scheme,
                .k = packed.request().k,
                .dtype = dtype};
  const std::shared_ptr<Entry> entry = entries_.FindOrAdd(key, BytesOfInputs(key.k, false));
  const std::lock_guard lock(entry->mutex);
  if (!entry->inputs) {
    PREPACK_TRY_ASSIGN(GemmInputs inputs,
                       GemmInputs::Make(packed, source, dtype, nullptr, {}, Drawn(key.k)));
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
  const std::shared_ptr<Entry> entry = entries_.OwnerOf(inputs);
  if (!entry) return make();
  const std::lock_guard lock(entry->mutex);
  if (!entry->kernel_rows) {
    PREPACK_TRY_ASSIGN(entry->kernel_rows, make());
  }
  return entry->kernel_rows;
}

}  // namespace prepack
