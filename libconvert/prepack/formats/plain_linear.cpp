#include "prepack/formats/plain_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "prepack/base/status.h"
#include "prepack/formats/stored_linear.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

constexpr uint64_t kElementBytes = 2;

class PlainLinear final : public StoredLinear {
 public:
  PlainLinear(const Checkpoint& checkpoint, const StoredTensor& weight)
      : StoredLinear(checkpoint), weight_(weight) {
    module_.Borrow(ModuleOf(weight.name));
    n_ = weight.shape[0];
    k_ = weight.shape[1];
    scheme_ = DequantizedScheme(n_, k_);
    AddSource(weight);
  }

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override {
    PREPACK_TRY(CheckPanel(range, out.size()));
    return checkpoint().ReadRuns(weight_,
                                 {.offset = (range.n0 * k_ + range.k0) * kElementBytes,
                                  .run_bytes = range.cols * kElementBytes,
                                  .stride = k_ * kElementBytes,
                                  .runs = range.rows},
                                 out);
  }
  std::optional<CodesInSource> FindCodes(const PanelRange& range) const override {
    if (range.cols != k_) return std::nullopt;
    return CodesInSource{.tensor = weight_.name, .offset = range.n0 * k_ * kElementBytes};
  }
  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override {
    PREPACK_TRY(CheckRows(n0, rows, out.size()));
    std::ranges::fill(out, 1.0F);
    return {};
  }
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override {
    PREPACK_TRY(CheckRows(n0, rows, out.size()));
    std::ranges::fill(out, uint8_t{0});
    return {};
  }

  StoredBits WhereCode(uint64_t n, uint64_t k) const override {
    return WhereElement(weight_, n * k_ + k);
  }
  StoredBits WhereScale(uint64_t /*n*/, uint64_t /*g*/) const override { return {}; }
  StoredBits WhereZeroPoint(uint64_t /*n*/, uint64_t /*g*/) const override { return {}; }
  PanelRange CodesNear(uint64_t byte) const override {
    const uint64_t element = byte / kElementBytes;
    return {.n0 = element / k_, .rows = 1, .k0 = element % k_, .cols = 1};
  }

 private:
  const StoredTensor& weight_;
};

}  // namespace

const StoredTensor* FindPlainWeight(const Checkpoint& checkpoint, std::string_view module) {
  const StoredTensor* weight = checkpoint.Find(fmt::format("{}.weight", module));
  const bool plain = weight != nullptr && weight->dtype == DType::kBF16 &&
                     weight->shape.size() == 2 && weight->bytes != 0;
  return plain ? weight : nullptr;
}

std::unique_ptr<QuantizedLinear> MakePlainLinear(const Checkpoint& checkpoint,
                                                 const StoredTensor& weight) {
  return std::make_unique<PlainLinear>(checkpoint, weight);
}

}  // namespace prepack
