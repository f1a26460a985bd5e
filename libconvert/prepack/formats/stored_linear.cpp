#include "prepack/formats/stored_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/float_convert.h"
#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/container/json_fields.h"
#include "prepack/formats/accepted.h"
#include "prepack/formats/finding.h"
#include "prepack/io/noted_ranges.h"
#include "prepack/kernels/kernels.h"
#include "prepack/model/module_name.h"

namespace prepack {

namespace {

// Little-endian 16-bit numbers, widened by `widen`.
template <typename Widen>
void WidenHalves(std::span<const std::byte> stored, std::span<float> out, Widen widen) {
  static_assert(std::endian::native == std::endian::little);
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, stored.data() + i * sizeof half, sizeof half);
    out[i] = widen(half);
  }
}

bool IsZeroWeight(CodeType code, uint8_t bits, uint8_t zero_point) {
  if (!IsFloatCode(code)) return bits == zero_point;
  return (bits & (code == CodeType::kF4E2M1 ? 0x7U : 0x7FU)) == 0;  // of either sign
}

}  // namespace

void StoredLinear::AddSource(const StoredTensor& tensor, uint64_t sharers) {
  source_tensors_.push_back(tensor.name);
  source_bytes_ += tensor.bytes / sharers;
}

namespace {

// By their bits, without a branch, so that it is done by vectors.
bool AllFiniteAndNotZero(std::span<const float> scales) {
  constexpr auto kLargest = std::bit_cast<int32_t>(std::numeric_limits<float>::max());
  int32_t bad = 0;  // negative if any of them is 0, or larger than the largest
  for (const float scale : scales) {
    const int32_t size = std::bit_cast<int32_t>(scale) & std::numeric_limits<int32_t>::max();
    bad |= (size - 1) | (kLargest - size);
  }
  return bad >= 0;
}

}  // namespace

Status StoredLinear::CheckScales(const StoredTensor& tensor, uint64_t n0, uint64_t rows,
                                 std::span<const float> scales) const {
  if (AllFiniteAndNotZero(scales)) return {};
  for (size_t i = 0; i < rows * groups(); ++i) {
    if (std::isfinite(scales[i]) && scales[i] != 0.0F) continue;
    const uint64_t n = n0 + i / groups();
    const uint64_t group = i % groups();
    if (!std::isfinite(scales[i])) {
      return Malformed(
                 checkpoint_.Where(tensor),
                 fmt::format("the scale of channel {}, group {} is not a finite number", n, group))
          .Found(std::isnan(scales[i]) ? "NaN" : "infinity")
          .Hint("Quantize the model again: this layer computes garbage in every runtime")
          .Id(FindingId("scale-not-finite"));
    }
    if (zero_scales_accepted_) continue;  // zero times any code is zero
    PREPACK_TRY(CheckZeroScale(tensor, n, group));
  }
  return {};
}

Status StoredLinear::CheckZeroScale(const StoredTensor& tensor, uint64_t n, uint64_t group) const {
  // Zeros that stand for what is not here say nothing of codes.
  const NotedRanges& noted = NotedRanges::OfProcess();
  const std::filesystem::path& file = checkpoint_.files()[tensor.file].file.path();
  if (noted.mode() == NotedRanges::Mode::kMissing && noted.Has(file, tensor.offset, tensor.bytes)) {
    return {};
  }
  std::vector<uint8_t> zero_points(groups());
  PREPACK_TRY(ReadZeroPoints(n, 1, zero_points));
  const uint8_t zero_point = zero_points[group];
  const uint64_t begin = group * scheme_->group_size;
  const uint64_t end = std::min(k_, begin + scheme_->group_size);
  // A group of odd size can begin or end in the middle of a byte.
  const uint64_t first = begin - begin % 2;
  const uint64_t last = std::min(k_, end + end % 2);
  std::vector<std::byte> codes(PanelRowBytes(scheme_->code, last - first));
  PREPACK_TRY(ReadCodes({.n0 = n, .rows = 1, .k0 = first, .cols = last - first}, codes));
  for (uint64_t k = begin; k < end; ++k) {
    const uint8_t code = PanelCode(scheme_->code, codes, last - first, 0, k - first);
    if (IsZeroWeight(scheme_->code, code, zero_point)) continue;
    return RefuseZeroScale(
        Malformed(checkpoint_.Where(tensor),
                  fmt::format("the scale of channel {}, group {} is zero, but the group has "
                              "weights",
                              n, group))
            .Found(fmt::format("code {} at [{}, {}]", code, n, k))
            .Expected(fmt::format("the zero point {} in the whole group", zero_point))
            .Hint("Runtimes compute zeros with such groups; --accept scale-zero packs them as "
                  "zeros"),
        tensor);
  }
  return {};
}

// What is noted must not depend on which of several threads comes first: it names no channel.
Status StoredLinear::RefuseZeroScale(Status why, const StoredTensor& tensor) const {
  constexpr FindingId kId = "scale-zero";
  PREPACK_TRY_ASSIGN(const bool accepts, accepted_.Accepts(kId, module(), tensor.name));
  if (!accepts) return std::move(why).Id(kId);
  zero_scales_accepted_ = true;
  accepted_.Note(module(), {.id = kId.kind().id,
                            .severity = kId.kind().severity,
                            .where = checkpoint_.Where(tensor),
                            .message = "scales are zero in groups that have weights: the weights "
                                       "are zeros",
                            .hint = kId.kind().hint,
                            .more = 0,
                            .accepted = true});
  return {};
}

StoredBits WhereElement(const StoredTensor& tensor, uint64_t index) {
  const auto bits = static_cast<uint32_t>(DTypeBits(tensor.dtype));
  return {{.tensor = tensor.name, .bit = index * bits, .bits = bits}};
}

namespace {

// As many floats as `out` takes, wherever they lie.
Status ReadFloatRuns(const Checkpoint& checkpoint, const StoredTensor& tensor, const ByteRuns& runs,
                     std::span<float> out) {
  Scratch<std::byte> stored(out.size() * DTypeBits(tensor.dtype) / 8);
  PREPACK_TRY(checkpoint.ReadRuns(tensor, runs, stored));
  switch (tensor.dtype) {
    case DType::kBF16:
      WidenHalves(stored, out, [](uint16_t bits) { return BF16ToF32(bits); });
      return {};
    case DType::kF16:
      WidenHalves(stored, out, [](uint16_t bits) { return F16ToF32(bits); });
      return {};
    case DType::kF32:
      std::memcpy(out.data(), stored.data(), stored.size());
      return {};
    default:
      return Usage(checkpoint.Where(tensor), "not a tensor of floats that are read")
          .Found(DTypeName(tensor.dtype));
  }
}

}  // namespace

Status ReadFloats(const Checkpoint& checkpoint, const StoredTensor& tensor, uint64_t first,
                  std::span<float> out) {
  const size_t each = DTypeBits(tensor.dtype) / 8;
  const uint64_t bytes = out.size() * each;
  const ByteRuns run{.offset = first * each, .run_bytes = bytes, .stride = bytes, .runs = 1};
  return ReadFloatRuns(checkpoint, tensor, run, out);
}

Status ReadFloatColumns(const Checkpoint& checkpoint, const StoredTensor& tensor, uint64_t n,
                        uint64_t groups, uint64_t n0, uint64_t rows, std::span<float> out) {
  constexpr uint64_t kGroups = 8;  // half a cache line of every row at a time
  const size_t each = DTypeBits(tensor.dtype) / 8;
  Scratch<float> columns(kGroups * rows);
  for (uint64_t g0 = 0; g0 < groups; g0 += kGroups) {
    const uint64_t count = std::min(kGroups, groups - g0);
    const ByteRuns runs{.offset = (g0 * n + n0) * each,
                        .run_bytes = rows * each,
                        .stride = n * each,
                        .runs = count};
    PREPACK_TRY(ReadFloatRuns(checkpoint, tensor, runs, std::span(columns).first(count * rows)));
    TransposeUnits(sizeof(float))(
        std::as_bytes(std::span(columns)).data(), rows * sizeof(float), count, rows,
        std::as_writable_bytes(out).subspan(g0 * sizeof(float)).data(), groups * sizeof(float));
  }
  return {};
}

bool IsConv1d(const Json& config, std::string_view module) {
  static constexpr std::array<std::string_view, 5> kModels = {"gpt2", "openai-gpt", "imagegpt",
                                                              "decision_transformer", "clvp"};
  static constexpr std::array<std::string_view, 4> kLayers = {"c_attn", "q_attn", "c_proj", "c_fc"};
  const Json* model = JsonMember(config, "model_type");
  return model != nullptr && model->is_string() &&
         std::ranges::find(kModels, model->get_ref<const std::string&>()) != kModels.end() &&
         std::ranges::find(kLayers, LastPart(module)) != kLayers.end();
}

Status RefuseInputsFirst(const Checkpoint& checkpoint, std::string_view module,
                         const StoredTensor& weight, uint64_t rows, uint64_t columns) {
  if (rows == columns || !IsConv1d(checkpoint.config(), module)) return {};
  const StoredTensor* bias = checkpoint.Find(fmt::format("{}.bias", module));
  if (bias == nullptr || bias->shape != TensorShape{columns}) return {};
  return Unsupported(checkpoint.Where(weight),
                     "the weight of a Conv1D is quantized as the model stores it, [K, N]: its "
                     "scales belong to input channels, which prepack does not support")
      .Found(fmt::format("[{}, {}] beside a bias of {}", rows, columns, columns))
      .Expected(fmt::format("[N, K] = [{}, {}]", columns, rows))
      .Hint(
          "Quantize the float model with a tool that stores a Conv1D like any other linear layer, "
          "such as GPTQModel or AutoRound")
      .Id(FindingId("storage-unsupported"));
}

namespace {

class TrimmedLinear final : public QuantizedLinear {
 public:
  TrimmedLinear(std::unique_ptr<QuantizedLinear> padded, uint64_t k) : padded_(std::move(padded)) {
    module_.Borrow(padded_->module());
    Scheme scheme = padded_->scheme();
    if (scheme.granularity == Granularity::kChannel) scheme.group_size = k;
    scheme_ = scheme;
    n_ = padded_->n();
    k_ = k;
    stored_scale_dtype_ = padded_->stored_scale_dtype();
    source_tensors_ = padded_->source_tensors();
    source_bytes_ = padded_->source_bytes();
  }

  Status ReadCodes(const PanelRange& range, std::span<std::byte> out) const override {
    if (range.k0 > k_ || range.cols > k_ - range.k0) {
      return Usage(module(), "the panel does not fit the module")
          .Found(fmt::format("inputs {}+{}", range.k0, range.cols))
          .Expected(fmt::format("within {}", k_));
    }
    Status status = padded_->ReadCodes(range, out);
    return status.ok() && range.k0 + range.cols == k_ ? CheckDropped(range) : status;
  }
  Status ReadScales(uint64_t n0, uint64_t rows, std::span<float> out) const override {
    return padded_->ReadScales(n0, rows, out);
  }
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, std::span<uint8_t> out) const override {
    return padded_->ReadZeroPoints(n0, rows, out);
  }
  // Channels that are left lie where they were; more of them are near a byte than there are.
  const SourcePlaces* places() const override { return padded_->places(); }

 private:
  Status CheckDropped(const PanelRange& range) const {
    const PanelRange tail{.n0 = range.n0, .rows = range.rows, .k0 = k_, .cols = padded_->k() - k_};
    Scratch<std::byte> codes(PanelBytes(scheme_->code, tail));
    Scratch<uint8_t> zero_points(range.rows * groups());
    PREPACK_TRY(padded_->ReadCodes(tail, codes));
    PREPACK_TRY(padded_->ReadZeroPoints(range.n0, range.rows, zero_points));
    for (uint64_t row = 0; row < range.rows; ++row) {
      const uint8_t zero_point = zero_points[(row + 1) * groups() - 1];
      for (uint64_t col = 0; col < tail.cols; ++col) {
        const uint8_t code = PanelCode(scheme_->code, codes, tail.cols, row, col);
        if (code == zero_point) continue;
        return Malformed(module(), "an input channel that the model does not have holds a weight")
            .Found(fmt::format("code {} at [{}, {}], zero point {}", code, range.n0 + row, k_ + col,
                               zero_point))
            .Expected(fmt::format("zeros from input channel {} on", k_))
            .Id(FindingId("autoround-padding"));
      }
    }
    return {};
  }

  std::unique_ptr<QuantizedLinear> padded_;
};

}  // namespace

std::unique_ptr<QuantizedLinear> TrimInputs(std::unique_ptr<QuantizedLinear> padded, uint64_t k) {
  return std::make_unique<TrimmedLinear>(std::move(padded), k);
}

}  // namespace prepack
