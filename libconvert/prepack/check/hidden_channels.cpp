// A regression on ranks, because strengths of channels span orders of magnitude and single outliers
// would decide an ordinary one.

#include "prepack/check/model_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/check/channel_orders.h"
#include "prepack/check/check.h"
#include "prepack/formats/stored_linear.h"

namespace prepack {
namespace {

// "model.layers.3." for a name in layer 3; empty if the name is in no layer.
std::string_view LayerPrefix(std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  const size_t found = name.find(kLayers);
  if (found == std::string_view::npos) return {};
  const size_t end = name.find('.', found + kLayers.size());
  return end == std::string_view::npos ? std::string_view() : name.substr(0, end + 1);
}

// Ranks with a mean of 0 and a length of 1; empty if all values are the same.
std::vector<double> Standardized(std::span<const float> values) {
  const std::vector<float> ranks = RanksOf(values);
  const double mean = (static_cast<double>(ranks.size()) - 1) / 2;
  std::vector<double> column(ranks.begin(), ranks.end());
  double squares = 0;
  for (double& value : column) {
    value -= mean;
    squares += value * value;
  }
  if (!(squares > 0)) return {};
  for (double& value : column) value /= std::sqrt(squares);
  return column;
}

double Product(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// How much of one column a linear regression on other columns explains.
class Regression {
 public:
  // The columns must outlive this.
  explicit Regression(std::vector<std::span<const double>> columns)
      : columns_(std::move(columns)), factor_(columns_.size() * columns_.size()) {
    // Cholesky. The small constant keeps columns that are nearly alike apart.
    constexpr double kRidge = 1e-3;
    const size_t size = columns_.size();
    for (size_t i = 0; i < size; ++i) {
      for (size_t j = 0; j <= i; ++j) {
        double sum = Product(columns_[i], columns_[j]) + (i == j ? kRidge : 0);
        for (size_t m = 0; m < j; ++m) sum -= factor_[i * size + m] * factor_[j * size + m];
        factor_[i * size + j] = i == j ? std::sqrt(sum) : sum / factor_[j * size + j];
      }
    }
  }

  // The share of the variance of `target`, as standardized, that is explained.
  double Explained(std::span<const double> target) const {
    const size_t size = columns_.size();
    std::vector<double> solved(size);
    double explained = 0;
    for (size_t i = 0; i < size; ++i) {
      double sum = Product(columns_[i], target);
      for (size_t m = 0; m < i; ++m) sum -= factor_[i * size + m] * solved[m];
      solved[i] = sum / factor_[i * size + i];
      explained += solved[i] * solved[i];
    }
    return explained;
  }

 private:
  std::vector<std::span<const double>> columns_;
  std::vector<double> factor_;
};

// Less what unrelated columns would explain.
double Adjusted(double explained, size_t channels, size_t columns) {
  const auto count = static_cast<double>(channels);
  const double left = count - static_cast<double>(columns) - 1;
  return std::sqrt(std::max(0.0, 1 - (1 - explained) * (count - 1) / left));
}

// The order in which the others predict the channels of `target`, if that is not the stored order.
// `chance`: what an order must be more improbable than.
std::optional<std::string> ToldOrder(std::span<const double> target, const Regression& others,
                                     size_t columns, double chance) {
  const size_t channels = target.size();
  const double stored = Adjusted(others.Explained(target), channels, columns);
  double highest = std::max(kHiddenCorrelation, stored + kHiddenGain);
  std::optional<std::string> found;
  std::vector<double> moved(channels);
  for (const ChannelOrder& order : WrongOrders()) {
    const std::vector<uint32_t> places = PlacesOf(order, channels);
    for (size_t i = 0; i < channels; ++i) moved[i] = target[places[i]];
    const double explained = others.Explained(moved);
    const double correlation = Adjusted(explained, channels, columns);
    if (correlation < highest || ChanceToExplain(explained, columns, channels) > chance) continue;
    highest = correlation;
    found = fmt::format("they correlate by {:.2f} as stored, but {} by {:.2f}", stored, order.name,
                        correlation);
  }
  return found;
}

bool IsNorm(std::string_view tensor) {
  return tensor.ends_with("norm.weight");
}

bool IsEmbedding(std::string_view tensor) {
  return tensor.ends_with("embed_tokens.weight") || tensor.ends_with("wte.weight");
}

// Everything in a layer that has one value per hidden channel.
struct Layer {
  std::vector<size_t> modules;  // indices
  std::vector<const StoredTensor*> norms;
};

class HiddenChannels {
 public:
  HiddenChannels(const Checkpoint& checkpoint, const std::vector<std::vector<float>>& energies,
                 std::vector<ModuleCheck>& modules)
      : checkpoint_(checkpoint), energies_(energies), modules_(modules) {
    size_t trials = 0;
    for (size_t i = 0; i < modules_.size(); ++i) {
      const std::string_view layer = LayerPrefix(modules_[i].module);
      const size_t channels = energies_[i].size();
      if (channels >= kMinHiddenChannels && channels <= kMostHiddenChannels && !layer.empty()) {
        layers_[{layer, channels}].modules.push_back(i);
        ++trials;
      }
    }
    trials *= WrongOrders().size();
    chance_ = kHiddenFalseAlarms / static_cast<double>(std::max<size_t>(trials, 1));
    for (const StoredTensor& tensor : checkpoint_.tensors()) {
      if (!IsReadable(tensor.dtype)) continue;
      if (tensor.shape.size() == 1 && IsNorm(tensor.name)) {
        const auto layer = layers_.find({LayerPrefix(tensor.name), tensor.shape[0]});
        if (layer != layers_.end()) layer->second.norms.push_back(&tensor);
      } else if (tensor.shape.size() == 2 && IsEmbedding(tensor.name)) {
        embedding_ = &tensor;
      }
    }
  }

  Status Judge() {
    for (const auto& [key, layer] : layers_) PREPACK_TRY(JudgeLayer(key.second, layer));
    return {};
  }

 private:
  static bool IsReadable(DType dtype) {
    return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
  }

  bool HasEmbedding(size_t channels) const {
    return embedding_ != nullptr && embedding_->shape[1] == channels &&
           channels * sizeof(float) * kFewestTokens <= kEmbeddingBytes;
  }

  Status JudgeLayer(size_t channels, const Layer& layer) {
    // With fewer than two others there are only pairs; more than a few do not make up a layer.
    const size_t count = layer.modules.size() + layer.norms.size();
    const bool embedded = HasEmbedding(channels);
    if (count + (embedded ? 1 : 0) < 3 || count > kMostColumns || 4 * count > channels) return {};
    std::vector<std::vector<double>> columns;
    for (const size_t module : layer.modules) columns.push_back(Standardized(energies_[module]));
    std::vector<float> values(channels);
    for (const StoredTensor* norm : layer.norms) {
      PREPACK_TRY(ReadFloats(checkpoint_, *norm, 0, values));
      columns.push_back(Standardized(values));
    }
    if (embedded) {
      if (embedding_ranks_.size() != channels) PREPACK_TRY(ReadEmbedding(channels));
      columns.push_back(embedding_ranks_);
    }
    for (size_t i = 0; i < layer.modules.size(); ++i) {
      if (!columns[i].empty()) JudgeModule(columns, i, modules_[layer.modules[i]]);
    }
    return {};
  }

  void JudgeModule(const std::vector<std::vector<double>>& columns, size_t target,
                   ModuleCheck& module) const {
    std::vector<std::span<const double>> others;
    for (size_t i = 0; i < columns.size(); ++i) {
      if (i != target && !columns[i].empty()) others.emplace_back(columns[i]);
    }
    if (others.size() < 2) return;
    const size_t count = others.size();
    const std::optional<std::string> order =
        ToldOrder(columns[target], Regression(std::move(others)), count, chance_);
    if (!order) return;
    module.findings.push_back(
        MakeFinding("codes-unlike-weights", module.module,
                    fmt::format("its input channels are in another order than those of everything "
                                "else in the layer: {}",
                                *order)));
  }

  // The energies of the first tokens.
  Status ReadEmbedding(size_t channels) {
    const uint64_t rows =
        std::min<uint64_t>(embedding_->shape[0], kEmbeddingBytes / (channels * sizeof(float)));
    std::vector<float> values(rows * channels);
    PREPACK_TRY(ReadFloats(checkpoint_, *embedding_, 0, values));
    std::vector<float> energies(channels);
    for (size_t i = 0; i < values.size(); ++i) energies[i % channels] += values[i] * values[i];
    embedding_ranks_ = Standardized(energies);
    return {};
  }

  // With fewer tokens, the energies of the embedding are random.
  static constexpr uint64_t kFewestTokens = 8;
  static constexpr size_t kMostColumns = 16;

  const Checkpoint& checkpoint_;
  const std::vector<std::vector<float>>& energies_;
  std::vector<ModuleCheck>& modules_;
  std::map<std::pair<std::string_view, uint64_t>, Layer> layers_;  // by prefix and channels
  double chance_ = 0;                                              // of one module in one order
  const StoredTensor* embedding_ = nullptr;
  std::vector<double> embedding_ranks_;
};

}  // namespace

// Chernoff's bound of chi square. It holds for ranks: they are spread evenly, and sums of such
// values leave their mean more rarely than those of normal ones, to which the bound is the same.
double ChanceToExplain(double explained, size_t columns, size_t channels) {
  const auto expected = static_cast<double>(columns);
  const double found = explained * static_cast<double>(channels - 1);
  if (columns == 0 || found <= expected) return 1;
  return std::exp((expected - found + expected * std::log(found / expected)) / 2);
}

Status JudgeHiddenChannels(const Checkpoint& checkpoint,
                           const std::vector<std::vector<float>>& energies,
                           std::vector<ModuleCheck>& modules) {
  return HiddenChannels(checkpoint, energies, modules).Judge();
}

}  // namespace prepack
