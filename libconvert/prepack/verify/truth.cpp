// Decodes the source of a packed module with the second decoder. A fused module is several modules
// of the source, decoded one after the other; the parts that a kernel can hold only once
// (act-order, input scale) must then agree. Then rounds the weights as the kernel does.

#include "prepack/verify/truth.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <type_traits>
#include <utility>

#include "prepack/base/float_convert.h"
#include "prepack/base/status.h"
#include "prepack/gemm/reference.h"
#include "prepack/model/module_name.h"
#include "prepack/model/stacked_linear.h"

namespace prepack {
namespace {

// How vLLM's FP8 kernel reads an e4m3 number: zeros and subnormals, m · 2^-9 with m from 0 to 7,
// become (1 + m / 8) · 2^-7.
float ReadAsNormal(float value) {
  // Chosen by bits: a branch would be guessed wrong half of the time.
  constexpr uint32_t kLeastNormal = 0x3C800000;  // 2^-6
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  const float small = 0x1p-7F * (1 + std::bit_cast<float>(magnitude) * 0x1p9F / 8);
  const uint32_t is_small = magnitude < kLeastNormal ? 0xFFFFFFFFU : 0U;
  const uint32_t as_normal = std::bit_cast<uint32_t>(small) | (bits & 0x80000000U);
  return std::bit_cast<float>((bits & ~is_small) | (as_normal & is_small));
}

// kToActivation means f16 here; if the activations are bf16, it is the same as kToBF16.
template <WeightRounding kRounding>
double Operand(float step, float scale) {
  switch (kRounding) {
    case WeightRounding::kNone:
      return static_cast<double>(step) * static_cast<double>(scale);
    case WeightRounding::kToF32:
      return static_cast<double>(step * scale);
    case WeightRounding::kToBF16:
      return static_cast<double>(RoundByInstruction(DType::kBF16, step * scale));
    case WeightRounding::kToActivation:
      return static_cast<double>(RoundByInstruction(DType::kF16, step * scale));
    case WeightRounding::kFp8:
      return static_cast<double>(ReadAsNormal(step)) * static_cast<double>(scale);
    case WeightRounding::kFp8ToBF16:
      return static_cast<double>(RoundByInstruction(DType::kBF16, ReadAsNormal(step) * scale));
    case WeightRounding::kDequantized:
      return static_cast<double>(RoundTo(DType::kBF16, step * scale));
  }
  return 0;
}

// Calls work with the rounding as a constant, so that loops over weights take several at a time.
template <typename Work>
auto WithRounding(WeightRounding rounding, bool to_f16, const Work& work) {
  using enum WeightRounding;
  switch (rounding) {
    case kNone:
      return work(std::integral_constant<WeightRounding, kNone>());
    case kToF32:
      return work(std::integral_constant<WeightRounding, kToF32>());
    case kToActivation:
      if (to_f16) return work(std::integral_constant<WeightRounding, kToActivation>());
      break;
    case kFp8:
      return work(std::integral_constant<WeightRounding, kFp8>());
    case kFp8ToBF16:
      return work(std::integral_constant<WeightRounding, kFp8ToBF16>());
    case kDequantized:
      return work(std::integral_constant<WeightRounding, kDequantized>());
    case kToBF16:
      break;
  }
  return work(std::integral_constant<WeightRounding, kToBF16>());
}

// All operands, with scales [rows, groups] as the layout stores them. With the rounding and the
// scale of a run fixed, the loop over its weights takes several at a time.
template <WeightRounding kRounding, typename T>
void FillOperands(const DecodedRows& decoded, std::span<const float> scales,
                  std::span<T> operands) {
  const uint64_t inputs = decoded.inputs();
  const std::vector<uint64_t> runs = RunsOf(decoded.group_of);
  for (uint64_t row = 0; row < decoded.rows(); ++row) {
    const float* steps = &decoded.steps[row * inputs];
    T* to = &operands[row * inputs];
    uint64_t k = 0;
    for (const uint64_t end : runs) {
      const float scale = scales[row * decoded.groups() + decoded.group_of[k]];
      for (; k < end; ++k) to[k] = static_cast<T>(Operand<kRounding>(steps[k], scale));
    }
  }
}

template <typename T>
void FillAs(WeightRounding rounding, const Layout& layout, const PackRequest& request,
            const DecodedRows& decoded, std::span<T> operands) {
  std::vector<float> scales;
  AppendStoredScales(layout, request, decoded, scales);
  WithRounding(rounding, request.activation_dtype == DType::kF16,
               [&](auto constant) { FillOperands<constant.value>(decoded, scales, operands); });
}

}  // namespace

std::vector<uint64_t> RunsOf(std::span<const uint64_t> group_of) {
  std::vector<uint64_t> ends;
  for (uint64_t k = 1; k <= group_of.size(); ++k) {
    if (k == group_of.size() || group_of[k] != group_of[k - 1]) ends.push_back(k);
  }
  return ends;
}

void AppendStoredScales(const Layout& layout, const PackRequest& request,
                        const DecodedRows& decoded, std::vector<float>& scales) {
  const DType dtype = layout.scales.value.Of(request);
  const size_t first = scales.size();
  scales.resize(first + decoded.scales.size());
  std::ranges::transform(decoded.scales, scales.begin() + static_cast<std::ptrdiff_t>(first),
                         [=](double scale) { return RoundTo(dtype, static_cast<float>(scale)); });
}

void FillKernelWeights(WeightRounding rounding, const Layout& layout, const PackRequest& request,
                       const DecodedRows& decoded, std::span<double> operands) {
  FillAs(rounding, layout, request, decoded, operands);
}

void FillKernelWeights(WeightRounding rounding, const Layout& layout, const PackRequest& request,
                       const DecodedRows& decoded, std::span<float> operands) {
  FillAs(rounding, layout, request, decoded, operands);
}

bool ReadsAsNormal(WeightRounding rounding) {
  return rounding == WeightRounding::kFp8 || rounding == WeightRounding::kFp8ToBF16;
}

void ReadAllAsNormal(std::span<const float> steps, std::span<float> read) {
  const float* from = steps.data();
  float* to = read.data();
  for (size_t i = 0; i < steps.size(); ++i) to[i] = ReadAsNormal(from[i]);
}

void FillKernelWeights(WeightRounding rounding, bool to_f16, std::span<const float> steps,
                       std::span<const float> scales, std::span<double> operands) {
  WithRounding(rounding, to_f16, [=](auto constant) {
    for (size_t i = 0; i < steps.size(); ++i) {
      operands[i] = Operand<constant.value>(steps[i], scales[i]);
    }
  });
}

void FillKernelWeights(WeightRounding rounding, bool to_f16, std::span<const float> steps,
                       float scale, std::span<float> operands) {
  WithRounding(rounding, to_f16, [=](auto constant) {
    for (size_t i = 0; i < steps.size(); ++i) {
      operands[i] = static_cast<float>(Operand<constant.value>(steps[i], scale));
    }
  });
}

void FillExactWeights(const DecodedRows& decoded, std::span<double> weights) {
  const uint64_t inputs = decoded.inputs();
  const std::vector<uint64_t> runs = RunsOf(decoded.group_of);
  for (uint64_t row = 0; row < decoded.rows(); ++row) {
    const float* steps = &decoded.steps[row * inputs];
    double* to = &weights[row * inputs];
    uint64_t k = 0;
    for (const uint64_t end : runs) {
      const double scale = decoded.scales[row * decoded.groups() + decoded.group_of[k]];
      for (; k < end; ++k) to[k] = static_cast<double>(steps[k]) * scale;
    }
  }
}

namespace {

Status MembersDiffer(const PackedModule& packed, std::string_view what) {
  return Malformed(
      fmt::format("module {}", packed.name()),
      fmt::format("the modules of the source that it is made from differ in {}", what));
}

// Appends rows of another member.
Status Append(const PackedModule& packed, DecodedRows& more, DecodedRows& out) {
  if (more.group_of != out.group_of) return MembersDiffer(packed, "the groups of their inputs");
  if (more.small.empty() != out.small.empty() || more.values != out.values) {
    more.Widen();
    out.Widen();
  }
  out.small.insert(out.small.end(), more.small.begin(), more.small.end());
  out.steps.insert(out.steps.end(), more.steps.begin(), more.steps.end());
  out.scales.insert(out.scales.end(), more.scales.begin(), more.scales.end());
  return {};
}

}  // namespace

namespace {

// Keeps every `step`th of the rows.
void KeepRows(uint64_t step, DecodedRows& decoded) {
  if (step == 1) return;
  decoded.Widen();
  const uint64_t inputs = decoded.inputs();
  const uint64_t groups = decoded.groups();
  const uint64_t rows = CeilDiv(decoded.rows(), step);
  for (uint64_t row = 1; row < rows; ++row) {
    const auto from = static_cast<std::ptrdiff_t>(row * step);
    const auto to = static_cast<std::ptrdiff_t>(row);
    const auto steps = decoded.steps.begin();
    const auto scales = decoded.scales.begin();
    const auto width = static_cast<std::ptrdiff_t>(inputs);
    const auto count = static_cast<std::ptrdiff_t>(groups);
    std::copy_n(steps + from * width, width, steps + to * width);
    std::copy_n(scales + from * count, count, scales + to * count);
  }
  decoded.steps.resize(rows * inputs);
  decoded.scales.resize(rows * groups);
}

}  // namespace

namespace {

// The share of a NUMA node: of down_proj and w2 input channels, else output channels.
Status DecodeShare(const SecondDecoder& source, const PackedModule& packed, const InputSlab& inputs,
                   uint64_t n0, uint64_t rows, DecodedRows& out) {
  const NodeShare share = ParseNodeShare(packed.name());
  const std::string module(share.module);
  const auto [n, k] = std::pair(packed.request().n, packed.request().k);
  if (!module.ends_with(".down_proj") && !module.ends_with(".w2")) {
    return source.DecodeSlab(module, k, inputs, share.node * n + n0, rows, out);
  }
  const InputSlab slab{.k0 = share.node * k + inputs.k0, .inputs = inputs.inputs};
  return source.DecodeSlab(module, packed.nodes() * k, slab, n0, rows, out);
}

}  // namespace

Status DecodeSourceRows(const SecondDecoder& source, const PackedModule& packed, uint64_t n0,
                        uint64_t rows, DecodedRows& out, const std::optional<InputSlab>& slab) {
  const uint64_t k = packed.request().k;
  const InputSlab inputs = slab.value_or(InputSlab{.k0 = 0, .inputs = k});
  const std::vector<FusedMember>& members = packed.members();
  if (ParseNodeShare(packed.name()).is_share) {
    return DecodeShare(source, packed, inputs, n0, rows, out);
  }
  // The common case needs no copy.
  if (members.size() == 1) {
    const auto piece = source.FindInStack(members.front().module, packed.request().n);
    if (piece) {
      PREPACK_TRY(source.DecodeSlab(piece->module, k, inputs, piece->first + n0 * piece->step,
                                    (rows - 1) * piece->step + 1, out));
      KeepRows(piece->step, out);
      return {};
    }
    return source.DecodeSlab(members.front().module, k, inputs, n0, rows, out);
  }
  DecodedRows more;
  more.takes_small = out.takes_small;
  more.takes_codes = out.takes_codes;
  return packed.member_ends().ForRows(n0, rows, [&](const StackedRows& piece) {
    const std::string& module = members[piece.member].module;
    if (piece.before == 0) {
      return source.DecodeSlab(module, k, inputs, piece.n0, piece.rows, out);
    }
    PREPACK_TRY(source.DecodeSlab(module, k, inputs, piece.n0, piece.rows, more));
    return Append(packed, more, out);
  });
}

Status ReadSourceBias(const SecondDecoder& source, const PackedModule& packed,
                      std::vector<double>& bias) {
  bias.clear();
  const uint64_t n = packed.request().n;
  if (const auto piece = source.FindInStack(packed.members().front().module, n)) {
    if (!source.HasBias(piece->module)) return {};
    std::vector<double> whole;
    PREPACK_TRY(source.ReadBias(piece->module, whole));
    if (whole.size() <= piece->first + (n - 1) * piece->step) {
      return Malformed(fmt::format("module {}", piece->module), "its bias is too short")
          .Found(fmt::format("{} elements", whole.size()));
    }
    for (uint64_t i = 0; i < n; ++i) bias.push_back(whole[piece->first + i * piece->step]);
    return {};
  }
  const bool wanted = source.HasBias(packed.members().front().module);
  std::vector<double> own;
  for (const FusedMember& member : packed.members()) {
    if (source.HasBias(member.module) != wanted)
      return MembersDiffer(packed, "whether they have a bias");
    if (!wanted) continue;
    PREPACK_TRY(source.ReadBias(member.module, own));
    bias.insert(bias.end(), own.begin(), own.end());
  }
  return {};
}

Result<DecodedInput> ReadSourceInput(const SecondDecoder& source, const PackedModule& packed) {
  if (const auto piece = source.FindInStack(packed.members().front().module, packed.request().n)) {
    return source.ReadInput(piece->module);
  }
  Result<DecodedInput> first = source.ReadInput(packed.members().front().module);
  for (const FusedMember& member : packed.members()) {
    Result<DecodedInput> own = source.ReadInput(member.module);
    if (!own.ok()) return own;
    if (*own != *first) return MembersDiffer(packed, "the scale of their inputs");
  }
  return first;
}

namespace {

// AWQ stores eight in a word.
constexpr uint64_t kGatheredChannels = 8;

void AddRows(std::span<const double> bias, std::span<double> y) {
  for (size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
}

}  // namespace

std::vector<double> DenseRowsOfKernel(const GemmInputs& inputs, const KernelModel& dense) {
  const uint64_t k = inputs.k();
  const std::span<const uint64_t> order = inputs.order();
  std::vector<double> line(inputs.columns());
  std::vector<double> rows(inputs.dense_rows() * k);
  for (uint64_t row = 0; row < inputs.dense_rows(); ++row) {
    dense.CopyActivations(row, line);
    double* to = &rows[row * k];
    for (uint64_t j = 0; j < k; ++j) to[order[j]] = line[j];
  }
  return rows;
}

GemmTruth::GemmTruth(const PackedModule& packed, const SecondDecoder& source,
                     const GemmInputs& inputs, std::shared_ptr<const std::vector<double>> dense,
                     const KernelModel& hot)
    : packed_(packed), source_(source), inputs_(inputs), kernel_dense_(std::move(dense)) {
  kernel_hot_ = inputs.hot();
  for (uint64_t row = 0; row < kernel_hot_.size(); ++row) {
    for (HotInput& input : kernel_hot_[row])
      input.value = hot.Activation(row, inputs.places()[input.k]);
  }
}

Status GemmTruth::AddBias() {
  // If a packed module has lost its bias, y lacks it.
  const PartSpec* part = FindPart(packed_.parts(), PartRole::kBias);
  const DType dtype = part == nullptr ? DType::kF32 : part->dtype;
  Status status = ReadSourceBias(source_, packed_, exact_bias_);
  if (!status.ok() || exact_bias_.empty()) return status;
  if (exact_bias_.size() != packed_.request().n) {
    return Malformed(fmt::format("module {}", packed_.name()),
                     "the bias of the source has another size");
  }
  for (const double value : exact_bias_) {
    kernel_bias_.push_back(static_cast<double>(RoundTo(dtype, static_cast<float>(value))));
  }
  return {};
}

Status GemmTruth::Decode(uint64_t n0, uint64_t channels, DecodedRows& decoded,
                         DecodedRows& scattered) const {
  if (inputs_.slab() && packed_.request().reordered) {
    return Gather(n0, channels, decoded, scattered);
  }
  return DecodeSourceRows(source_, packed_, n0, channels, decoded, inputs_.slab());
}

// With act-order, the input channels of a slab lie anywhere, so all are decoded, for a few output
// channels at a time.
Status GemmTruth::Gather(uint64_t n0, uint64_t channels, DecodedRows& out,
                         DecodedRows& from) const {
  const std::span<const uint64_t> inputs = inputs_.channels();
  out.steps.resize(channels * inputs.size());
  out.small.clear();
  out.scales.clear();
  out.group_of.resize(inputs.size());
  for (uint64_t first = 0; first < channels; first += kGatheredChannels) {
    const uint64_t count = std::min(kGatheredChannels, channels - first);
    PREPACK_TRY(DecodeSourceRows(source_, packed_, n0 + first, count, from));
    for (uint64_t row = 0; row < count; ++row) {
      float* to = &out.steps[(first + row) * inputs.size()];
      for (const uint64_t k : inputs) *to++ = from.steps[row * from.inputs() + k];
    }
    out.scales.insert(out.scales.end(), from.scales.begin(), from.scales.end());
  }
  std::ranges::transform(inputs, out.group_of.begin(),
                         [&](uint64_t k) { return from.group_of[k]; });
  return {};
}

Status GemmTruth::Compute(WeightRounding rounding, uint64_t n0, uint64_t channels,
                          TruthPanel& panel) const {
  const PackRequest& request = packed_.request();
  PREPACK_TRY(Decode(n0, channels, panel.decoded, panel.scattered));
  panel.weights.resize(channels * inputs_.k());
  panel.kernel.resize(inputs_.rows() * channels);
  panel.exact.resize(panel.kernel.size());

  FillKernelWeights(rounding, packed_.layout(), request, panel.decoded, std::span(panel.weights));
  Multiply({*kernel_dense_, kernel_hot_}, panel.weights, channels, panel.kernel);
  FillExactWeights(panel.decoded, panel.weights);
  Multiply({inputs_.exact(), inputs_.hot()}, panel.weights, channels, panel.exact);
  if (exact_bias_.empty()) return {};
  AddRows(std::span(kernel_bias_).subspan(n0, channels), panel.kernel);
  AddRows(std::span(exact_bias_).subspan(n0, channels), panel.exact);
  return {};
}

void GemmTruth::Multiply(const TruthRows& rows, std::span<const double> weights, uint64_t channels,
                         std::span<double> y) const {
  const uint64_t k = inputs_.k();
  const uint64_t dense = inputs_.dense_rows();
  ReferenceGemm(dense, channels, k, rows.dense, weights, y.first(dense * channels));
  for (uint64_t row = 0; row < rows.hot.size(); ++row) {
    for (uint64_t n = 0; n < channels; ++n) {
      double sum = 0;
      for (const HotInput& hot : rows.hot[row]) sum += weights[n * k + hot.k] * hot.value;
      y[(dense + row) * channels + n] = sum;
    }
  }
}

}  // namespace prepack
