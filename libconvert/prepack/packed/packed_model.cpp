#include "prepack/packed/packed_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/memory.h"
#include "prepack/base/thread_kept.h"
#include "prepack/container/json_fields.h"
#include "prepack/kernels/codes.h"
#include "prepack/kernels/memory.h"
#include "prepack/model/module_name.h"
#include "prepack/model/split_linear.h"
#include "prepack/packed/folder.h"
#include "prepack/packed/manifest.h"

namespace prepack {
namespace {

using SharedFolder = std::shared_ptr<const PackedFolder>;

// By-input layouts hold all output channels of an input channel side by side: narrower strips would
// read a few bytes from each of many far places.
constexpr uint64_t kWideRows = 512;

uint64_t Floor(uint64_t value, uint64_t unit) {
  return value / unit * unit;
}
uint64_t Ceil(uint64_t value, uint64_t unit, uint64_t most) {
  return std::min(most, CeilDiv(value, unit) * unit);
}

// Is a code one that the scheme does not have? Panels hold two per byte, or one.
bool HasOtherCodes(const Scheme& scheme, std::span<const std::byte> codes) {
  const auto any = [&](auto is_other) {
    return std::ranges::any_of(
        codes, [&](std::byte byte) { return is_other(std::to_integer<unsigned>(byte)); });
  };
  switch (scheme.code) {
    case CodeType::kF8E4M3:
      return HasF8NaN(U8(codes.data()), codes.size());
    case CodeType::kU4: {
      const unsigned beyond = (0xFU << scheme.bits & 0xFU) * 0x11U;
      return beyond != 0 && any([&](unsigned code) { return (code & beyond) != 0; });
    }
    case CodeType::kU8: {
      const unsigned beyond = 0xFFU << scheme.bits & 0xFFU;
      return beyond != 0 && any([&](unsigned code) { return (code & beyond) != 0; });
    }
    default:
      return false;
  }
}

// One packed module, or one expert of a stack, before fused layers are taken apart.
class PackedLinear final : public QuantizedLinear {
 public:
  PackedLinear(SharedFolder folder, const ModuleRecord& record, PackedModule packed);

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override;
  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override;
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override;

  // What is static of its activations is read at once.
  Status ReadInput();

 private:
  uint64_t PartBytes(PartRole role) const;
  void DescribeScheme(const ModuleRecord& record);
  void AddTensors(const ModuleRecord& record);
  Result<InputOrder> ReadOrder() const;

  // Reads whole strips, and hands out of them what is wanted.
  template <typename T, typename Read>
  Status ReadRows(uint64_t n0, uint64_t rows, std::span<T> out, Read read) const;

  SharedFolder folder_;
  PackedModule packed_;
  TileCut cut_;
};

PackedLinear::PackedLinear(SharedFolder folder, const ModuleRecord& record, PackedModule packed)
    : folder_(std::move(folder)),
      packed_(std::move(packed)),
      cut_(packed_.layout().cut(packed_.request())) {
  module_.Own(packed_.name());
  n_ = packed_.request().n;
  k_ = packed_.request().k;
  wide_rows_ = static_cast<uint32_t>(std::max(cut_.rows, cut_.by_inputs ? kWideRows : 1));
  DescribeScheme(record);
  AddTensors(record);
  if (FindPart(packed_.parts(), PartRole::kInputOrder) != nullptr) {
    k_order_ = std::make_unique<const KeptOrder>([this] { return ReadOrder(); });
  }
}

void PackedLinear::DescribeScheme(const ModuleRecord& record) {
  Scheme scheme = packed_.request().scheme;
  // A static scale is kept only where the kernel needs it.
  if (record.source_activations && record.source_activations->dynamic) {
    scheme.activations = *record.source_activations;
  }
  scheme_ = scheme;
  // Scales that were rounded are those of the dtype that they were rounded to.
  stored_scale_dtype_ = record.rounded_scales == 0
                            ? record.stored_scale_dtype
                            : packed_.layout().scales.value.Of(packed_.request());
}

void PackedLinear::AddTensors(const ModuleRecord& record) {
  for (const auto& [name, part] : record.parts) {
    if (name != "bias") {
      source_tensors_.push_back(part.tensor);
      source_bytes_ += part.bytes() / std::max<uint64_t>(record.experts, 1);
      continue;
    }
    // Of fused layers, and of the experts of a stack, it is not named after the layer.
    if (record.fused.empty()) continue;
    SetRare({.stacked_bias = StackedBias{.tensor = part.tensor,
                                         .row = packed_.expert().value_or(0),
                                         .rows = record.experts,
                                         .channels = n_}});
  }
}

uint64_t PackedLinear::PartBytes(PartRole role) const {
  const PartSpec* part = FindPart(packed_.parts(), role);
  return part == nullptr ? 0 : TensorBytes(part->dtype, part->shape).value_or(0);
}

Status PackedLinear::ReadInput() {
  if (PartBytes(PartRole::kInputScale) != sizeof(float)) return {};
  InputQuantization input;
  PREPACK_TRY(packed_.ReadPart(PartRole::kInputScale, 0,
                               std::as_writable_bytes(std::span(&input.scale, 1))));
  if (PartBytes(PartRole::kInputZeroPoint) == sizeof(int32_t)) {
    PREPACK_TRY(packed_.ReadPart(PartRole::kInputZeroPoint, 0,
                                 std::as_writable_bytes(std::span(&input.zero_point, 1))));
  }
  RareNumbers rare = this->rare();
  rare.input = input;
  SetRare(rare);
  return {};
}

Result<InputOrder> PackedLinear::ReadOrder() const {
  InputOrder order(k_);
  PREPACK_TRY(packed_.ReadPart(PartRole::kInputOrder, 0, std::as_writable_bytes(std::span(order))));
  std::vector<bool> seen(k_);
  for (const uint32_t channel : order) {
    if (channel >= k_ || seen[channel]) {
      return Malformed(fmt::format("module {}", module()),
                       "part input_order is not a permutation of the input channels")
          .Hint("Run `prepack verify` on the folder");
    }
    seen[channel] = true;
  }
  return order;
}

Status PackedLinear::ReadCodes(const PanelRange& range, std::span<std::byte> out) const {
  PREPACK_TRY(CheckPanel(range, out.size()));
  const uint64_t unit = std::lcm(cut_.cols, uint64_t{2});
  PanelRange wide{
      .n0 = Floor(range.n0, cut_.rows), .rows = 0, .k0 = Floor(range.k0, unit), .cols = 0};
  wide.rows = Ceil(range.n0 + range.rows, cut_.rows, n_) - wide.n0;
  wide.cols = Ceil(range.k0 + range.cols, unit, k_) - wide.k0;
  const bool whole = wide.rows == range.rows && wide.cols == range.cols;
  // Buffers of a thread are kept: panels come by the thousand.
  auto& packed = KeptByThread<PageBuffer, PackedLinear>();
  Scratch<std::byte> scratch(whole ? 0 : PanelBytes(scheme_->code, wide));
  const std::span<std::byte> codes = whole ? out : std::span(scratch.data(), scratch.size());
  PREPACK_TRY(
      packed_.ReadCodes(wide.n0, wide.rows, {.k0 = wide.k0, .inputs = wide.cols}, packed, codes));
  if (HasOtherCodes(scheme(), codes)) {
    return Malformed(fmt::format("module {}", module()), "a code is none of the scheme's")
        .Hint("Run `prepack verify` on the folder");
  }
  if (whole) return {};
  const size_t wide_bytes = PanelRowBytes(scheme_->code, wide.cols);
  const size_t row_bytes = PanelRowBytes(scheme_->code, range.cols);
  const size_t before = PanelRowBytes(scheme_->code, range.k0 - wide.k0);
  const bool odd = IsNibble(scheme_->code) && range.cols % 2 != 0;
  for (uint64_t row = 0; row < range.rows; ++row) {
    const std::byte* from = &codes[(range.n0 - wide.n0 + row) * wide_bytes + before];
    std::memcpy(&out[row * row_bytes], from, row_bytes);
    if (odd) out[(row + 1) * row_bytes - 1] &= std::byte{0x0F};
  }
  return {};
}

template <typename T, typename Read>
Status PackedLinear::ReadRows(uint64_t n0, uint64_t rows, std::span<T> out, Read read) const {
  PREPACK_TRY(CheckRows(n0, rows, out.size()));
  const uint64_t first = Floor(n0, cut_.strip_rows);
  const uint64_t count = Ceil(n0 + rows, cut_.strip_rows, n_) - first;
  auto& packed = KeptByThread<PageBuffer, PackedLinear>();
  if (first == n0 && count == rows) return read(first, count, packed, out);
  Scratch<T> values(count * groups());
  PREPACK_TRY(read(first, count, packed, std::span<T>(values.data(), values.size())));
  std::copy_n(values.begin() + (n0 - first) * groups(), out.size(), out.begin());
  return {};
}

Status PackedLinear::ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const {
  PREPACK_TRY(
      ReadRows(n0, rows, out,
               [this](uint64_t first, uint64_t count, PageBuffer& packed, std::span<float> to) {
                 return packed_.ReadScales(first, count, packed, to);
               }));
  if (std::ranges::all_of(out, [](float scale) { return std::isfinite(scale); })) return {};
  return Malformed(fmt::format("module {}", module()), "a scale is not finite")
      .Hint("Run `prepack verify` on the folder");
}

Status PackedLinear::ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const {
  return ReadRows(
      n0, rows, out,
      [this](uint64_t first, uint64_t count, PageBuffer& packed, std::span<uint8_t> to) {
        return packed_.ReadZeroPoints(first, count, packed, to);
      });
}

// Adds a module, or the layers that were fused into it.
Status AddLinear(const SharedFolder& folder, const ModuleRecord& record, PackedModule packed,
                 QuantizedModel& model) {
  const std::vector<FusedMember> members = packed.members();
  auto linear = std::make_unique<PackedLinear>(folder, record, std::move(packed));
  PREPACK_TRY(linear->ReadInput());
  if (record.fused.empty()) {
    model.modules.push_back(std::move(linear));
    return {};
  }
  uint64_t first = 0;
  for (const FusedMember& member : members) {
    PREPACK_TRY_ASSIGN(
        std::unique_ptr<QuantizedLinear> piece,
        ChooseChannels(*linear, member.module, {.first = first, .step = 1, .n = member.n}));
    model.modules.push_back(std::move(piece));
    first += member.n;
  }
  model.members.push_back(std::move(linear));
  return {};
}

Status AddModules(const SharedFolder& folder, const std::string& name, const ModuleRecord& record,
                  QuantizedModel& model) {
  PREPACK_TRY_ASSIGN(PackedModule packed, PackedModule::Open(*folder, name, record));
  if (record.experts == 0) return AddLinear(folder, record, std::move(packed), model);
  for (uint64_t expert = 0; expert < record.experts; ++expert) {
    PREPACK_TRY(AddLinear(folder, record, packed.OneExpert(expert), model));
  }
  return {};
}

}  // namespace

bool IsPackedFolder(const Checkpoint& checkpoint) {
  const Json* declared = JsonMember(checkpoint.config(), "quantization_config");
  if (declared == nullptr || !declared->is_object()) return false;
  const Json* method = JsonMember(*declared, "quant_method");
  return method != nullptr && *method == kPackedFormat;
}

Result<QuantizedModel> ReadPackedModel(const Checkpoint& checkpoint) {
  PREPACK_TRY_ASSIGN(PackedFolder opened, PackedFolder::Open(checkpoint.path()));
  const auto folder = std::make_shared<const PackedFolder>(std::move(opened));
  const Manifest& manifest = folder->manifest();
  if (!manifest.kept.empty()) {
    return Unsupported(
               fmt::format("module {}", manifest.kept.begin()->first),
               fmt::format("the packed folder keeps it as {} stored it", manifest.source_format))
        .Hint("Convert the checkpoint that the folder was made from");
  }
  QuantizedModel model;
  model.format = kPackedFormat;
  model.quantization_config = JsonMember(checkpoint.config(), "quantization_config");
  for (const auto& [name, record] : manifest.modules) {
    if (ParseNodeShare(name).is_share) {
      return Unsupported(fmt::format("module {}", name),
                         "it is the share of one NUMA node (convert --numa)")
          .Hint("Convert the checkpoint that the folder was made from");
    }
    PREPACK_TRY(AddModules(folder, name, record, model));
  }
  std::ranges::sort(model.modules, {}, [](const auto& linear) { return linear->module(); });
  return model;
}

Result<QuantizedModel> ReadSourceModel(const Checkpoint& checkpoint,
                                       const AcceptedFindings& accepted) {
  if (checkpoint.origin() != nullptr) {
    QuantizedModel model;
    PREPACK_TRY(checkpoint.origin()->Read(checkpoint, model));
    if (!model.errors.empty()) return std::move(model.errors.front());
    return model;
  }
  if (IsPackedFolder(checkpoint)) return ReadPackedModel(checkpoint);
  return ReadQuantizedModel(checkpoint, accepted);
}

}  // namespace prepack
