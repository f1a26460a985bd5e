// Compensated f64 sums behind the figures, and the products of the source's weights (the truth) and
// of the unquantized model (the baseline).

#include "prepack/verify/products.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "prepack/base/decibel.h"
#include "prepack/base/status.h"
#include "prepack/formats/stored_linear.h"
#include "prepack/gemm/reference.h"
#include "prepack/kernels/kernels.h"
#include "prepack/measure/baseline.h"
#include "prepack/model/stacked_linear.h"

namespace prepack {

double DecibelOrNaN(double signal, double noise) {
  return Decibel(signal, noise).value_or(std::numeric_limits<double>::quiet_NaN());
}

namespace {

// The first `count` elements, and zeros behind them.
template <typename T>
std::array<T, kFigureChannels> Padded(const T* from, uint64_t count) {
  std::array<T, kFigureChannels> padded = {};
  std::copy_n(from, count, padded.begin());
  return padded;
}

// Of output channels of a block from `first` on; channels behind its last one are zero.
FigureLanes SumsOf(const OutputBlock& block, uint64_t first, std::span<const double> signal,
                   std::span<const float> value) {
  FigureLanes lanes;
  if (block.rows == 0) return lanes;
  const double* truth = &signal[first];
  const float* judged = &value[first];
  const uint64_t count = block.channels - first;
  if (count >= kFigureChannels) {
    Kernels().add_figures(truth, judged, block.channels, block.rows, lanes);
    return lanes;
  }
  for (uint64_t row = 0; row < block.rows; ++row) {
    Kernels().add_figures(Padded(truth + row * block.channels, count).data(),
                          Padded(judged + row * block.channels, count).data(), kFigureChannels, 1,
                          lanes);
  }
  return lanes;
}

}  // namespace

void FigureSums::Add(const OutputBlock& block, std::span<const double> signal,
                     std::span<const float> value) {
  for (uint64_t first = 0; first < block.channels; first += kFigureChannels) {
    const FigureLanes lanes = SumsOf(block, first, signal, value);
    for (uint64_t i = 0; i < std::min(kFigureChannels, block.channels - first); ++i) {
      const CompensatedSum channel_signal(lanes.signal[i], lanes.signal_error[i]);
      const CompensatedSum channel_noise(lanes.noise[i], lanes.noise_error[i]);
      signal_.Add(channel_signal);
      noise_.Add(channel_noise);
      value_.Add(CompensatedSum(lanes.value[i], lanes.value_error[i]));
      dot_.Add(CompensatedSum(lanes.dot[i], lanes.dot_error[i]));
      max_error_ = std::max(max_error_, lanes.largest[i]);
      AddChannel(block.n0 + first + i, channel_signal.Value(), channel_noise.Value());
    }
  }
}

// A channel that should be zero and is zero is never the worst one.
void FigureSums::AddChannel(uint64_t n, double signal, double noise) {
  if (signal == 0 && noise == 0) return;
  // Mostly one is clearly better than the worst so far, which shows without a logarithm.
  constexpr double kClearly = 1 + 1e-9;
  const double ratio = signal / noise;
  if (ratio > worst_ratio_ * kClearly) return;
  const double decibel =
      signal == 0 ? -std::numeric_limits<double>::infinity() : DecibelOrNaN(signal, noise);
  if (!(decibel < worst_db_ || (decibel == worst_db_ && n < worst_channel_))) return;
  worst_db_ = decibel;
  worst_ratio_ = ratio;
  worst_channel_ = n;
}

void FigureSums::Merge(const FigureSums& other) {
  signal_.Add(other.signal_);
  noise_.Add(other.noise_);
  value_.Add(other.value_);
  dot_.Add(other.dot_);
  max_error_ = std::max(max_error_, other.max_error_);
  if (other.worst_db_ < worst_db_) {
    worst_db_ = other.worst_db_;
    worst_ratio_ = other.worst_ratio_;
    worst_channel_ = other.worst_channel_;
  }
}

Json CompensatedSum::Write() const {
  return Json::array({ExactNumber(sum_), ExactNumber(error_)});
}

CompensatedSum CompensatedSum::Read(JsonFields& fields, std::string_view key) {
  const Json* parts = fields.Array(key);
  if (parts == nullptr || parts->size() != 2) return {};
  const Json both = {{"sum", (*parts)[0]}, {"error", (*parts)[1]}};
  JsonFields numbers = fields.Same(both);
  const double sum = ReadExactNumber(numbers, "sum");
  return {sum, ReadExactNumber(numbers, "error")};
}

Json FigureSums::Write() const {
  return {{"signal", signal_.Write()},
          {"noise", noise_.Write()},
          {"value", value_.Write()},
          {"dot", dot_.Write()},
          {"max_error", ExactNumber(max_error_)},
          {"worst_channel", worst_channel_},
          {"worst_db", ExactNumber(worst_db_)},
          {"worst_ratio", ExactNumber(worst_ratio_)}};
}

FigureSums FigureSums::Read(JsonFields fields) {
  FigureSums sums;
  sums.signal_ = CompensatedSum::Read(fields, "signal");
  sums.noise_ = CompensatedSum::Read(fields, "noise");
  sums.value_ = CompensatedSum::Read(fields, "value");
  sums.dot_ = CompensatedSum::Read(fields, "dot");
  sums.max_error_ = ReadExactNumber(fields, "max_error");
  sums.worst_channel_ = fields.Uint("worst_channel");
  sums.worst_db_ = ReadExactNumber(fields, "worst_db");
  sums.worst_ratio_ = ReadExactNumber(fields, "worst_ratio");
  return sums;
}

Figure FigureSums::Result() const {
  const double lengths = std::sqrt(signal_.Value() * value_.Value());
  return {.sqnr_db = DecibelOrNaN(signal_.Value(), noise_.Value()),
          .cosine = dot_.Value() / lengths,
          .max_abs_error = max_error_,
          .worst_channel = worst_channel_,
          .worst_channel_sqnr_db = worst_db_};
}

namespace {

// For a module of zeros the ratio is undefined: outputs of zero are right to the bit, and any other
// output is as wrong as can be.
double DecibelOfZeros(const Figure& figure) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return figure.max_abs_error == 0 ? kInfinity : -kInfinity;
}

}  // namespace

void BatchSums::Resize(size_t batches) {
  kernel.resize(batches);
  end_to_end.resize(batches);
}

void BatchSums::Merge(const BatchSums& other) {
  zeros = zeros && other.zeros;
  Resize(other.kernel.size());
  for (size_t i = 0; i < kernel.size(); ++i) {
    kernel[i].Merge(other.kernel[i]);
    end_to_end[i].Merge(other.end_to_end[i]);
  }
}

Figure BatchSums::FigureOf(const FigureSums& sums) const {
  Figure figure = sums.Result();
  if (zeros && std::isnan(figure.sqnr_db)) figure.sqnr_db = DecibelOfZeros(figure);
  return figure;
}

std::vector<InputFigures> BatchSums::Figures(std::span<const InputBatch> batches) const {
  std::vector<InputFigures> figures;
  figures.reserve(batches.size());
  for (size_t i = 0; i < batches.size(); ++i) {
    figures.push_back({.input = std::string(batches[i].name),
                       .rows = batches[i].rows,
                       .kernel = FigureOf(kernel[i]),
                       .end_to_end = FigureOf(end_to_end[i]),
                       .kernel_bar_db = 0,
                       .end_to_end_bar_db = {}});
  }
  return figures;
}

void BaselineProductSums::Merge(const BaselineProductSums& other) {
  weight_signal.Add(other.weight_signal);
  weight_noise.Add(other.weight_noise);
  output.Merge(other.output);
}

QualityFigures BaselineProductSums::Figures() const {
  return {.weight_sqnr_db = DecibelOrNaN(weight_signal.Value(), weight_noise.Value()),
          .output_sqnr_db = output.Result().sqnr_db,
          .below_peers_db = {}};
}

Result<BaselineProduct> BaselineProduct::Find(const Checkpoint& baseline,
                                              const PackedModule& packed,
                                              const GemmInputs& inputs) {
  BaselineProduct product;
  product.baseline_ = &baseline;
  product.packed_ = &packed;
  product.inputs_ = &inputs;
  for (const FusedMember& member : packed.members()) {
    PREPACK_TRY(product.FindMember(member, packed.request().k));
  }
  product.batch_ = kAllGaussianRows;
  for (size_t i = 0; i < inputs.batches().size(); ++i) {
    if (inputs.batches()[i].name == "recorded") product.batch_ = i;
  }
  return product;
}

// Weight and bias of one module.
Status BaselineProduct::FindMember(const FusedMember& member, uint64_t k) {
  std::vector<Finding> findings;
  const std::optional<BaselineWeight> weight =
      FindBaselineWeight(*baseline_, {.name = member.module, .n = member.n, .k = k}, findings);
  if (!weight) return Unsupported(findings.front().where, findings.front().message);
  weights_.push_back(*weight);
  const size_t first = bias_.size();
  bias_.resize(first + member.n);
  const StoredTensor* bias = baseline_->Find(member.module + ".bias");
  if (bias == nullptr || bias->shape != std::vector{member.n}) return {};
  return ReadFloats(*baseline_, *bias, 0, std::span(bias_).subspan(first));
}

// Fills buffers.weights; channels that the quantizer padded are zero.
Status BaselineProduct::ReadWeights(const OutputBlock& block,
                                    BaselineProductBuffers& buffers) const {
  const uint64_t k = inputs_->k();
  buffers.weights.assign(block.channels * k, 0);
  return packed_->member_ends().ForRows(block.n0, block.channels, [&](const StackedRows& piece) {
    const BaselineWeight& weight = weights_[piece.member];
    if (inputs_->slab()) return ReadSlab(weight, piece, buffers);
    const uint64_t stored_k = weight.k;
    buffers.stored.resize(piece.rows * stored_k);
    Status status = weight.Read(*baseline_, piece.n0, piece.rows, buffers.stored);
    for (uint64_t row = 0; status.ok() && row < piece.rows; ++row) {
      std::ranges::copy(
          std::span(buffers.stored).subspan(row * stored_k, stored_k),
          buffers.weights.begin() + static_cast<std::ptrdiff_t>((piece.before + row) * k));
    }
    return status;
  });
}

// The same for a slab, row by row. Its input channels lie side by side unless the module is in
// act-order.
Status BaselineProduct::ReadSlab(const BaselineWeight& weight, const StackedRows& piece,
                                 BaselineProductBuffers& buffers) const {
  const std::span<const uint64_t> channels = inputs_->channels();
  const auto [first, last] = std::ranges::minmax(channels);
  const bool together = last - first + 1 == channels.size() && !weight.inputs_first;
  const uint64_t begin = together ? std::min(first, weight.k) : 0;
  buffers.stored.resize(together ? std::min(last + 1, weight.k) - begin : weight.k);
  for (uint64_t row = 0; row < piece.rows; ++row) {
    const uint64_t n = piece.n0 + row;
    PREPACK_TRY(together ? ReadFloats(*baseline_, *weight.tensor, n * weight.k + begin,
                                      std::span(buffers.stored))
                         : weight.Read(*baseline_, n, 1, buffers.stored));
    double* to = &buffers.weights[(piece.before + row) * channels.size()];
    for (size_t i = 0; i < channels.size(); ++i) {
      to[i] = IsStored(i) ? static_cast<double>(buffers.stored[channels[i] - begin]) : 0;
    }
  }
  return {};
}

// Whether the unquantized model has this input channel.
bool BaselineProduct::IsStored(uint64_t input) const {
  const std::span<const uint64_t> channels = inputs_->channels();
  return (channels.empty() ? input : channels[input]) < weights_.front().k;
}

Status BaselineProduct::Add(const OutputBlock& block, std::span<const double> quantized,
                            std::span<const float> y, BaselineProductBuffers& buffers,
                            BaselineProductSums& sums) const {
  const uint64_t k = inputs_->k();
  PREPACK_TRY(ReadWeights(block, buffers));
  for (uint64_t row = 0; row < block.channels; ++row) {
    for (uint64_t j = 0; j < k; ++j) {
      if (!IsStored(j)) continue;
      const double weight = buffers.weights[row * k + j];
      const double error = weight - quantized[row * k + j];
      sums.weight_signal.Add(weight * weight);
      sums.weight_noise.Add(error * error);
    }
  }
  buffers.y.resize(block.rows * block.channels);
  const InputBatch& rows = inputs_->batches()[batch_];
  ReferenceGemm(block.rows, block.channels, k,
                inputs_->exact().subspan(rows.first * k, rows.rows * k), buffers.weights,
                buffers.y);
  for (size_t i = 0; i < buffers.y.size(); ++i) {
    buffers.y[i] += static_cast<double>(bias_[block.n0 + i % block.channels]);
  }
  sums.output.Add(block, buffers.y, y);
  return {};
}

}  // namespace prepack
