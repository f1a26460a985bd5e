#include "prepack/verify/packed_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "prepack/base/float_convert.h"
#include "prepack/base/parallel.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/layouts/table.h"
#include "prepack/verify/packed_operands.h"
#include "prepack/verify/truth.h"

namespace prepack {
namespace {

// Output channels at a time: models begin at multiples of kModelUnit.
constexpr uint64_t kChannelsAtATime = kModelUnit;
// Rows of activations, all zero: of a few rows, some kernels round other things.
constexpr uint64_t kRows = 64;

// The weights of one packed module as its kernel reads them.
class KernelWeights {
 public:
  explicit KernelWeights(const PackedModule& packed) : packed_(packed) {}

  Status Open();
  // W [channels, K] of output channels from n0 on, a multiple of kModelUnit, in packed order.
  Status Read(uint64_t n0, std::span<double> weights) const;
  // The same of decoded weights: in the order of the checkpoint, not rounded.
  void Round(const DecodedRows& decoded, std::span<double> weights) const;
  // Where an output has them in bf16 [channels, K], in the order of the checkpoint: makes those of
  // Read the same. False: the kernel reads other numbers than the codes stand for.
  bool ToPlain(std::span<double> weights) const;

 private:
  DecodedRows InPackedOrder(const DecodedRows& decoded) const;

  const PackedModule& packed_;
  WeightRounding rounding_ = WeightRounding::kNone;
  std::optional<PinnedBytes> weight_;
  std::optional<LoadedOperands> operands_;
  std::vector<float> x_;
  std::unique_ptr<KernelModel> model_;
  std::vector<int32_t> order_;          // empty: none
  std::vector<float> consumer_scales_;  // [N], where the op has no place for them
};

Status KernelWeights::Open() {
  const PackRequest& request = packed_.request();
  const std::string where = fmt::format("module {}", packed_.name());
  const auto rounding = WeightRoundingOf(packed_.layout(), request);
  const auto known = ModelledLayouts();
  if (!rounding || std::ranges::find(known, packed_.layout().id) == known.end()) {
    return Unsupported(where, "no kernel model reads the layout that it has in the source")
        .Found(std::string(packed_.layout().id));
  }
  rounding_ = *rounding;
  PREPACK_TRY_ASSIGN(weight_, packed_.PinWeight());
  PREPACK_TRY_ASSIGN(LoadedOperands operands, LoadedOperands::Load(packed_));
  operands_.emplace(std::move(operands));
  x_.assign(kRows * request.k, 0.0F);
  Status made;
  PREPACK_TRY(weight_->Visit([&](std::span<const std::byte> weight) {
    Result<std::unique_ptr<KernelModel>> model =
        MakeKernelModel(packed_.layout().id, operands_->With(weight),
                        {.m = kRows, .dtype = InputDType(packed_), .x = x_});
    if (model.ok()) {
      model_ = *std::move(model);
    } else {
      made = model.status();
    }
  }));
  if (!made.ok()) return Unsupported(where, made.ToString());
  if (request.reordered) {
    order_.resize(request.k);
    PREPACK_TRY(
        packed_.ReadPart(PartRole::kInputOrder, 0, std::as_writable_bytes(std::span(order_))));
  }
  if (!packed_.layout().consumer_scales.Of(request)) return {};
  PageBuffer packed;
  consumer_scales_.resize(request.n * request.groups());
  return packed_.ReadScales(0, request.n, packed, consumer_scales_);
}

Status KernelWeights::Read(uint64_t n0, std::span<double> weights) const {
  PREPACK_TRY(
      weight_->Visit([&](std::span<const std::byte> /*weight*/) { model_->Weights(n0, weights); }));
  if (consumer_scales_.empty()) return {};
  const uint64_t k = packed_.request().k;
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] *= static_cast<double>(consumer_scales_[n0 + i / k]);
  }
  return {};
}

DecodedRows KernelWeights::InPackedOrder(const DecodedRows& decoded) const {
  DecodedRows ordered = decoded;
  const uint64_t k = decoded.inputs();
  for (uint64_t j = 0; j < k; ++j) {
    const auto from = static_cast<uint64_t>(order_[j]);
    ordered.group_of[j] = decoded.group_of[from];
    for (uint64_t row = 0; row < decoded.rows(); ++row) {
      ordered.steps[row * k + j] = decoded.steps[row * k + from];
    }
  }
  return ordered;
}

void KernelWeights::Round(const DecodedRows& decoded, std::span<double> weights) const {
  FillKernelWeights(rounding_, packed_.layout(), packed_.request(),
                    order_.empty() ? decoded : InPackedOrder(decoded), weights);
}

bool KernelWeights::ToPlain(std::span<double> weights) const {
  if (rounding_ == WeightRounding::kFp8 || rounding_ == WeightRounding::kFp8ToBF16) return false;
  for (double& weight : weights) {
    weight = static_cast<double>(RoundTo(DType::kBF16, static_cast<float>(weight)));
  }
  if (order_.empty()) return true;
  const uint64_t k = order_.size();
  std::vector<double> row(k);
  for (uint64_t at = 0; at < weights.size(); at += k) {
    std::ranges::copy(weights.subspan(at, k), row.begin());
    for (uint64_t j = 0; j < k; ++j) weights[at + static_cast<uint64_t>(order_[j])] = row[j];
  }
  return true;
}

Status NoPlainWeights(const PackedModule& source) {
  return Unsupported(fmt::format("module {}", source.name()),
                     "the kernel of the source's layout reads some codes as other numbers: weights "
                     "in bf16 cannot be compared with them")
      .Found(std::string(source.layout().id));
}

// Output channels of a module that an output has in bf16.
Status ReadPlain(const PackedModule& packed, uint64_t n0, uint64_t rows,
                 std::span<double> weights) {
  const uint64_t k = packed.request().k;
  std::vector<uint16_t> bits(rows * k);
  PREPACK_TRY(packed.ReadPart(PartRole::kWeight, n0 * k * sizeof(uint16_t),
                              std::as_writable_bytes(std::span(bits))));
  std::ranges::transform(bits, weights.begin(),
                         [](uint16_t weight) { return static_cast<double>(BF16ToF32(weight)); });
  return {};
}

}  // namespace

PackedSource::PackedSource(PackedFolder folder) : folder_(std::move(folder)) {
  for (const auto& [name, record] : folder_.manifest().modules) {
    if (record.fused.empty()) places_.emplace(name, Place{.module = name});
    AddMembers(name, record);
  }
}

void PackedSource::AddMembers(const std::string& name, const ModuleRecord& record) {
  const uint64_t of_expert = record.n / std::max<uint64_t>(record.experts, 1);
  uint64_t first = 0;
  for (const FusedMember& member : record.fused) {
    places_.emplace(member.module,
                    Place{.module = name, .expert = first / of_expert, .first = first % of_expert});
    first += member.n;
  }
}

Result<PackedSource> PackedSource::Open(const std::filesystem::path& folder) {
  PREPACK_TRY_ASSIGN(PackedFolder opened, PackedFolder::Open(folder));
  return PackedSource(std::move(opened));
}

Result<DecodedDifferences> PackedSource::Compare(const PackedModule& packed,
                                                 const SecondDecoder* output, unsigned threads,
                                                 Progress& progress) const {
  const auto place = places_.find(NameInOutput(packed));
  if (place == places_.end()) {
    return Unsupported(fmt::format("module {}", packed.name()), "the source has no such layer");
  }
  const auto record = folder_.manifest().modules.find(place->second.module);
  PREPACK_TRY_ASSIGN(PackedModule whole,
                     PackedModule::Open(folder_, record->first, record->second));
  const PackedModule source =
      whole.request().stacked() ? whole.OneExpert(place->second.expert) : std::move(whole);
  KernelWeights kernel(source);
  PREPACK_TRY(kernel.Open());

  const uint64_t k = packed.request().k;
  const uint64_t first = place->second.first;
  const uint64_t end = first + packed.request().n;
  const uint64_t begin = first / kChannelsAtATime * kChannelsAtATime;
  std::vector<DecodedDifferences> of_worker(threads);
  Status status =
      ParallelFor(CeilDiv(end - begin, kChannelsAtATime), threads,
                  [&](size_t index, unsigned worker) -> Status {
                    if (CancellationRequested()) return Interrupted(packed.name());
                    const uint64_t n0 = begin + index * kChannelsAtATime;
                    const uint64_t n1 = std::min(n0 + kChannelsAtATime, end);
                    const uint64_t wanted = std::max(n0, first);
                    std::vector<double> expected((n1 - n0) * k);
                    std::vector<double> found((n1 - wanted) * k);
                    PREPACK_TRY(kernel.Read(n0, expected));
                    if (&packed.layout() == &kPlainBf16) {
                      PREPACK_TRY(ReadPlain(packed, wanted - first, n1 - wanted, found));
                      if (!kernel.ToPlain(expected)) return NoPlainWeights(source);
                    } else {
                      DecodedRows decoded;
                      PREPACK_TRY(output->Decode(NameInOutput(packed), k, wanted - first,
                                                 n1 - wanted, decoded));
                      kernel.Round(decoded, found);
                    }
                    CompareWeights(std::span(expected).last(found.size()), found, k, wanted - first,
                                   of_worker[worker]);
                    progress.Add(found.size());
                    return {};
                  });
  if (!status.ok()) return status;
  return Together(of_worker);
}

}  // namespace prepack
