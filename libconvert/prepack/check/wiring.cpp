// Measures angles between the vectors of neurons (the drawing is in wiring.h). A figure of 1 is
// what vectors of different neurons have by chance.

#include "prepack/check/wiring.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "prepack/base/status.h"
#include "prepack/check/channel_orders.h"
#include "prepack/check/check.h"
#include "prepack/check/measured.h"
#include "prepack/check/model_checks.h"
#include "prepack/container/json_fields.h"
#include "prepack/container/model_config.h"
#include "prepack/kernels/kernels.h"
#include "prepack/measure/module_statistics.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

// Neurons this far apart are compared, to measure angles between vectors that are not wired.
constexpr std::array<uint64_t, 3> kApart = {5, 23, 41};

double Dot(std::span<const float> a, std::span<const float> b) {
  return Kernels().dot_floats(a.data(), b.data(), a.size());
}

double MeanCosine(const NeuronVectors& a, const NeuronVectors& b, uint64_t apart) {
  double sum = 0;
  for (uint64_t i = 0; i < a.neurons; ++i) {
    sum += std::abs(Dot(a.Of(i), b.Of((i + apart) % b.neurons)));
  }
  return sum / static_cast<double>(a.neurons);
}

// A figure above this is not chance.
double OrderBar(uint64_t neurons) {
  return 1 + kWiredOrder / std::sqrt(static_cast<double>(neurons));
}

// Two sets of vectors, and how well they match.
struct Angles {
  const NeuronVectors* a = nullptr;
  const NeuronVectors* b = nullptr;
  double others = 0;  // mean |cosine| of different neurons
  double wiring = 0;

  double Of(double mean_cosine) const { return others > 0 ? mean_cosine / others : 1; }
};

Angles Measure(const NeuronVectors& a, const NeuronVectors& b) {
  Angles angles{.a = &a, .b = &b};
  for (const uint64_t apart : kApart) angles.others += MeanCosine(a, b, apart) / kApart.size();
  angles.wiring = angles.Of(MeanCosine(a, b, 0));
  return angles;
}

// The vectors with their neurons or their channels in another order.
NeuronVectors Reordered(const NeuronVectors& vectors, const ChannelOrder& order, bool neurons) {
  NeuronVectors result = vectors;
  const std::vector<uint32_t> places =
      PlacesOf(order, neurons ? vectors.neurons : vectors.channels);
  for (uint64_t i = 0; i < vectors.neurons; ++i) {
    const std::span<const float> from = vectors.Of(neurons ? places[i] : i);
    float* to = &result.values[i * vectors.channels];
    for (uint64_t k = 0; k < vectors.channels; ++k) to[k] = from[neurons ? k : places[k]];
  }
  return result;
}

// MeanCosine(Reordered(a, order, neurons), b, 0), row by row.
double ReorderedCosine(const NeuronVectors& a, const ChannelOrder& order, bool neurons,
                       const NeuronVectors& b) {
  const std::vector<uint32_t> places = PlacesOf(order, neurons ? a.neurons : a.channels);
  std::vector<float> row(neurons ? 0 : a.channels);
  double sum = 0;
  for (uint64_t i = 0; i < a.neurons; ++i) {
    std::span<const float> reordered = a.Of(neurons ? places[i] : i);
    if (!neurons) {
      std::ranges::transform(places, row.begin(),
                             [from = reordered.data()](uint32_t place) { return from[place]; });
      reordered = row;
    }
    sum += std::abs(Dot(reordered, b.Of(i)));
  }
  return sum / static_cast<double>(a.neurons);
}

// As many as suffice to tell one order from another: the first ones, or some from everywhere,
// because heads differ.
NeuronVectors Some(const NeuronVectors& vectors, bool from_everywhere) {
  constexpr uint64_t kSome = 64;
  const uint64_t neurons = std::min(kSome, vectors.neurons);
  const uint64_t step = from_everywhere ? vectors.neurons / std::max<uint64_t>(neurons, 1) : 1;
  NeuronVectors some{.neurons = neurons, .channels = vectors.channels, .values = {}, .lengths = {}};
  some.values.reserve(neurons * vectors.channels);
  for (uint64_t i = 0; i < neurons; ++i) {
    const std::span<const float> from = vectors.Of(i * step);
    some.values.insert(some.values.end(), from.begin(), from.end());
  }
  return some;
}

// The order of a's neurons or channels in which they match b; nullopt if there is none. Some of the
// neurons suggest an order, all of them confirm it.
std::optional<std::string> WiredOrder(const Angles& angles) {
  const ChannelOrder* best = nullptr;
  bool of_neurons = false;
  double highest = 0;
  for (const bool neurons : {false, true}) {
    const NeuronVectors a = Some(*angles.a, !neurons);
    const NeuronVectors b = Some(*angles.b, !neurons);
    for (const ChannelOrder& order : WrongOrders()) {
      // Neurons half of all away are not among those that were read.
      if (neurons && order.by_half) continue;
      const double wiring = angles.Of(ReorderedCosine(a, order, neurons, b));
      if (wiring <= highest) continue;
      highest = wiring;
      best = &order;
      of_neurons = neurons;
    }
  }
  if (highest < kMaybeWiredOrder) return std::nullopt;
  const NeuronVectors reordered = Reordered(*angles.a, *best, of_neurons);
  const double wiring = WiringOf(reordered, *angles.b);
  if (wiring < OrderBar(reordered.neurons)) return std::nullopt;
  return fmt::format("{} {} they do, by {:.1f}", of_neurons ? "neurons" : "hidden channels",
                     best->name, wiring);
}

// Whether some channels keep their places.
bool IsPartial(const ChannelOrder& order) {
  for (size_t i = 0; i < order.block; ++i) {
    if (order.block > 1 && order.places[i] == i) return true;
  }
  return false;
}

// The order in which the hidden channels of `a` match those of all `others` far better than as
// stored. Orders that leave some channels in place also leave some of the wiring intact.
std::optional<std::string> BetterOrder(const NamedVectors& a,
                                       std::span<const NamedVectors> others) {
  const NeuronVectors some = Some(*a.vectors, true);
  // Of each of the others: those that are compared with `some`, and how well they match as stored.
  std::vector<std::pair<NeuronVectors, double>> as_stored;
  for (const NamedVectors& other : others) {
    NeuronVectors of_other = Some(*other.vectors, true);
    const double cosine = MeanCosine(some, of_other, 0);
    as_stored.emplace_back(std::move(of_other), cosine);
  }
  for (const ChannelOrder& order : WrongOrders()) {
    if (!IsPartial(order)) continue;
    const bool maybe = std::ranges::any_of(as_stored, [&](const auto& other) {
      return ReorderedCosine(some, order, false, other.first) > kMaybeBetterOrder * other.second;
    });
    if (!maybe) continue;
    const NeuronVectors all = Reordered(*a.vectors, order, false);
    double gain = 0;
    double loss = 1;
    std::string message;
    for (const NamedVectors& other : others) {
      const double stored = WiringOf(*a.vectors, *other.vectors);
      const double better = WiringOf(all, *other.vectors);
      loss = std::min(loss, better / stored);
      if (better < OrderBar(all.neurons) || better / stored < gain) continue;
      gain = better / stored;
      message = fmt::format(
          "its neurons match those of {} by {:.1f} as stored, but with its hidden channels {} by "
          "{:.1f}",
          other.name, stored, order.name, better);
    }
    if (gain > kBetterOrder && loss > kNoWorseOrder) return message;
  }
  return std::nullopt;
}

std::string Describe(std::string_view a, std::string_view b, const Angles& angles,
                     std::string_view order) {
  return fmt::format(
      "its neurons do not match those of {} as stored ({:.2f} for {} and {}, 1 for those of "
      "different models), but with its {}",
      b, angles.wiring, a, b, order);
}

// The mean cosine, in standard errors.
double SignErrors(const NeuronVectors& a, const NeuronVectors& b) {
  Moments<double> cosines;
  for (uint64_t i = 0; i < a.neurons; ++i) cosines.Add(Dot(a.Of(i), b.Of(i)));
  const double error = cosines.Deviation() / std::sqrt(cosines.count);
  return error > 0 ? cosines.Mean() / error : 0;
}

constexpr size_t kGate = 0;
constexpr size_t kUp = 1;
constexpr size_t kDown = 2;

// Whether module i matches neither of the others, and why.
std::optional<WiringFault> JudgeAlien(const std::array<NamedVectors, 3>& mlp,
                                      const std::array<double, 3>& without, size_t i) {
  const size_t next = (i + 1) % 3;
  const size_t last = (i + 2) % 3;
  if (without[next] >= kWired || without[last] >= kWired) return std::nullopt;
  for (const size_t other : {next, last}) {
    const Angles angles = Measure(*mlp[i].vectors, *mlp[other].vectors);
    const std::optional<std::string> order = WiredOrder(angles);
    if (!order) continue;
    return WiringFault{.module = i,
                       .message = Describe(mlp[i].name, mlp[other].name, angles, *order)};
  }
  if (without[next] >= kNotWired || without[last] >= kNotWired || without[i] < kWellWired) {
    return std::nullopt;
  }
  // Only a factor lies between up and down, so a module that matches gate also matches up.
  return WiringFault{.module = i,
                     .message = fmt::format(
                         "its neurons are not those of {} and {}: these match each other by "
                         "{:.1f}, but the module matches them by {:.2f} and {:.2f} (1: not at all)",
                         mlp[next].name, mlp[last].name, without[i], without[last], without[next]),
                     .needs_peers = i != kUp};
}

std::optional<WiringFault> JudgeExchange(const std::array<NamedVectors, 3>& mlp) {
  const auto& [gate, up, down] = mlp;
  const std::vector<float> down_ranks = RanksOf(down.vectors->lengths);
  const double of_gate = Correlate(RanksOf(gate.vectors->lengths), down_ranks);
  const double of_up = Correlate(RanksOf(up.vectors->lengths), down_ranks);
  const double gate_sign = std::abs(SignErrors(*gate.vectors, *down.vectors));
  const double up_sign = std::abs(SignErrors(*up.vectors, *down.vectors));
  const bool by_length = of_gate > kLengthCorrelation && of_gate > of_up + kLengthGain;
  const bool by_sign = gate_sign > kSignErrors && gate_sign > up_sign + kSignGain;
  const bool not_by_sign = up_sign > kSignErrors && up_sign > gate_sign + kSignGain;
  const bool not_by_length = of_up > kLengthCorrelation && of_up > of_gate + kLengthGain;
  if (!(by_length && !not_by_sign) && !(by_sign && !not_by_length)) return std::nullopt;
  return WiringFault{
      .module = 0,
      .message = fmt::format("it is really the {1}: the lengths of its neurons correlate with "
                             "those of {2} by {3:.2f}, those of the {1} by {4:.2f}; mean cosines "
                             "of {5:.1f} and {6:.1f} standard errors",
                             gate.name, up.name, down.name, of_gate, of_up, gate_sign, up_sign),
      .exchanged = true};
}

}  // namespace

NeuronVectors MakeNeuronVectors(uint64_t neurons, uint64_t channels, std::vector<float> values) {
  NeuronVectors vectors{
      .neurons = neurons, .channels = channels, .values = std::move(values), .lengths = {}};
  vectors.lengths.resize(neurons);
  for (uint64_t i = 0; i < neurons; ++i) {
    const auto length = static_cast<float>(std::sqrt(Dot(vectors.Of(i), vectors.Of(i))));
    vectors.lengths[i] = length;
    if (!(length > 0)) continue;
    float* values_of = &vectors.values[i * channels];
    for (uint64_t k = 0; k < channels; ++k) values_of[k] /= length;
  }
  return vectors;
}

double WiringOf(const NeuronVectors& a, const NeuronVectors& b) {
  return Measure(a, b).wiring;
}

std::optional<WiringFault> JudgePair(const std::array<NamedVectors, 2>& pair) {
  const Angles angles = Measure(*pair[0].vectors, *pair[1].vectors);
  if (angles.wiring >= kWired) {
    const std::optional<std::string> better = BetterOrder(pair[0], std::span(pair).subspan(1));
    if (!better) return std::nullopt;
    return WiringFault{.module = 0, .message = *better};
  }
  const std::optional<std::string> order = WiredOrder(angles);
  if (!order) return std::nullopt;
  return WiringFault{.module = 0, .message = Describe(pair[0].name, pair[1].name, angles, *order)};
}

MlpWiring JudgeMlp(const std::array<NamedVectors, 3>& mlp) {
  MlpWiring wiring;
  for (size_t i = 0; i < mlp.size(); ++i) {
    wiring.without[i] = WiringOf(*mlp[(i + 1) % 3].vectors, *mlp[(i + 2) % 3].vectors);
  }
  // If no two match, the model was never trained, unless up or down is wrong.
  const bool trained =
      std::ranges::any_of(wiring.without, [](double without) { return without >= kWired; });
  if (!trained) {
    wiring.fault = JudgeAlien(mlp, wiring.without, kUp);
    return wiring;
  }
  // Up before down before gate: a module that matches no other is more likely to be up than gate.
  for (const size_t i : {kUp, kDown, kGate}) {
    wiring.fault = JudgeAlien(mlp, wiring.without, i);
    if (wiring.fault) return wiring;
  }
  for (const size_t i : {kUp, kDown, kGate}) {
    const std::array<NamedVectors, 2> others = {mlp[(i + 1) % 3], mlp[(i + 2) % 3]};
    const std::optional<std::string> better = BetterOrder(mlp[i], others);
    if (!better) continue;
    wiring.fault = WiringFault{.module = i, .message = *better};
    return wiring;
  }
  wiring.fault = JudgeExchange(mlp);
  return wiring;
}

namespace {

// Modules of an MLP by their leaf names: gate, up, down.
constexpr std::array<std::array<std::string_view, 3>, 2> kMlps = {
    {{"gate_proj", "up_proj", "down_proj"}, {"w1", "w3", "w2"}}};
// Gate and up in one module, gate first.
constexpr std::string_view kFusedMlp = "gate_up_proj";
constexpr std::array<std::string_view, 2> kFusedParts = {"gate half", "up half"};

// How many rows of the columns are read at once.
constexpr uint64_t kRowsAtOnce = 256;

// With act-order, a few input channels cannot be read without the others, so read this many rows.
constexpr uint64_t kWholeRowsAtOnce = 32;

// Input channels [first, first + neurons) of a module, one after the other.
Status ReadColumns(const QuantizedLinear& linear, uint64_t first, uint64_t neurons,
                   std::span<float> values) {
  const uint64_t n = linear.n();
  DequantizeBuffers buffers;
  std::vector<float> rows;
  for (uint64_t n0 = 0; n0 < n; n0 += kRowsAtOnce) {
    const PanelRange range{
        .n0 = n0, .rows = std::min(kRowsAtOnce, n - n0), .k0 = first, .cols = neurons};
    rows.resize(range.rows * neurons);
    PREPACK_TRY(DequantizePanel(linear, range, buffers, rows));
    for (uint64_t row = 0; row < range.rows; ++row) {
      for (uint64_t i = 0; i < neurons; ++i) values[i * n + n0 + row] = rows[row * neurons + i];
    }
  }
  return {};
}

// The same for an act-order module, for which whole rows are read and put back into order.
Status ReadReorderedColumns(const QuantizedLinear& linear, uint64_t first, uint64_t neurons,
                            std::span<float> values) {
  const uint64_t n = linear.n();
  const uint64_t k = linear.k();
  DequantizeBuffers buffers;
  std::vector<float> rows;
  for (uint64_t n0 = 0; n0 < n; n0 += kWholeRowsAtOnce) {
    const uint64_t count = std::min(kWholeRowsAtOnce, n - n0);
    rows.resize(count * k);
    PREPACK_TRY(DequantizeRows(linear, n0, count, buffers, rows));
    for (uint64_t row = 0; row < count; ++row) {
      for (uint64_t i = 0; i < neurons; ++i) values[i * n + n0 + row] = rows[row * k + first + i];
    }
  }
  return {};
}

// What the names of modules have before their last part, each once.
std::vector<std::string_view> ParentsOf(const QuantizedModel& model) {
  std::vector<std::string_view> parents;
  for (const auto& linear : model.modules) {
    const std::string_view name = linear->module();
    const std::string_view parent = name.substr(0, name.size() - LastPart(name).size());
    if (parents.empty() || parents.back() != parent) parents.push_back(parent);
  }
  std::ranges::sort(parents);
  parents.erase(std::unique(parents.begin(), parents.end()), parents.end());
  return parents;
}

// The modules whose names begin with `parent`: they follow each other.
class ModulesBelow {
 public:
  ModulesBelow(const QuantizedModel& model, std::string_view parent)
      : modules_(model.modules), prefix_(parent.size()) {
    const auto begin = [this](const auto& linear) { return linear->module().substr(0, prefix_); };
    first_ = std::ranges::lower_bound(modules_, parent, {}, begin);
    last_ = std::ranges::upper_bound(first_, modules_.end(), parent, {}, begin);
  }

  // The number of the quantized module PARENT + `leaf`.
  std::optional<size_t> Find(std::string_view leaf) const {
    const auto rest = [this](const auto& linear) { return linear->module().substr(prefix_); };
    const auto found = std::ranges::lower_bound(first_, last_, leaf, {}, rest);
    if (found == last_ || rest(*found) != leaf) return std::nullopt;
    if ((*found)->scheme().code == CodeType::kBF16) return std::nullopt;
    return static_cast<size_t>(found - modules_.begin());
  }

 private:
  using Modules = std::vector<std::unique_ptr<QuantizedLinear>>;

  const Modules& modules_;
  size_t prefix_;
  Modules::const_iterator first_;
  Modules::const_iterator last_;
};

}  // namespace

WiredBlocks::WiredBlocks(const Checkpoint& checkpoint, const QuantizedModel& model)
    : model_(model) {
  for (const std::string_view parent : ParentsOf(model)) {
    const ModulesBelow below(model, parent);
    for (const auto& [gate, up, down] : kMlps) {
      const auto a = below.Find(gate);
      const auto b = below.Find(up);
      const auto c = below.Find(down);
      if (a && b && c && model.modules[*a]->n() == model.modules[*b]->n()) AddMlp(*a, *b, *c, 0);
    }
    const auto fused = below.Find(kFusedMlp);
    const auto down = below.Find(kMlps[0][2]);
    if (fused && down) AddMlp(*fused, *fused, *down, model.modules[*fused]->n() / 2);
    const auto v = below.Find("v_proj");
    const auto o = below.Find("o_proj");
    if (v && o) AddAttention(LanguageConfig(checkpoint.config()), *v, *o);
  }
  std::ranges::sort(blocks_of_);  // names of one block may lie between those of another
}

void WiredBlocks::AddMlp(size_t gate, size_t up, size_t down, uint64_t up_row) {
  const QuantizedLinear& inner = *model_.modules[down];
  const QuantizedLinear& outer = *model_.modules[gate];
  const uint64_t neurons = up_row == 0 ? outer.n() : up_row;
  if (inner.k() != neurons || inner.n() != outer.k() || model_.modules[up]->k() != outer.k()) {
    return;
  }
  Add({{.module = gate}, {.module = up, .first_row = up_row}, {.module = down, .by_columns = true}},
      neurons, 1, outer.k());
}

void WiredBlocks::AddAttention(const Json& config, size_t v, size_t o) {
  const QuantizedLinear& values = *model_.modules[v];
  const QuantizedLinear& output = *model_.modules[o];
  const Json* heads = JsonMember(config, "num_attention_heads");
  if (heads == nullptr || !heads->is_number_unsigned() || values.k() != output.n()) {
    return;
  }
  const auto count = heads->get<uint64_t>();
  if (count == 0 || output.k() % count != 0) return;
  const uint64_t head = output.k() / count;
  if (head > values.n()) return;
  // If several query heads share a value head, use the first of them. If heads are not laid out
  // that way, only the first value head is known to be read by the first query head.
  const bool shared = values.n() % head == 0 && count % (values.n() / head) == 0;
  const uint64_t kv_heads = shared ? values.n() / head : 1;
  Add({{.module = v, .apart = head},
       {.module = o, .by_columns = true, .apart = count / kv_heads * head}},
      head, kv_heads, values.k());
}

void WiredBlocks::Add(std::vector<Part> parts, uint64_t neurons, uint64_t stretches,
                      uint64_t channels) {
  if (neurons < kFewestNeurons || channels < kFewestChannels || channels > kMostChannels) return;
  const uint64_t wanted = std::clamp<uint64_t>(kNeuronValues / channels, 128, kMostNeurons);
  auto block = std::make_unique<Block>();
  block->neurons = std::min(neurons, std::max(wanted / stretches, kFewestNeurons)) / 32 * 32;
  block->stretches = std::clamp<uint64_t>(wanted / block->neurons, 1, stretches);
  block->channels = channels;
  std::set<size_t> modules;
  for (const Part& part : parts) modules.insert(part.module);
  for (const size_t module : modules) blocks_of_.emplace_back(module, blocks_.size());
  block->remaining = modules.size();
  block->parts = std::move(parts);
  blocks_.push_back(std::move(block));
}

void WiredBlocks::KeepOnly(FunctionRef<bool(size_t module)> measured_here) {
  for (const auto& block : blocks_) {
    block->judged_here = measured_here(block->parts[0].module);
    std::set<size_t> modules;
    for (const Part& part : block->parts) {
      if (measured_here(part.module)) modules.insert(part.module);
    }
    block->remaining = modules.size();
  }
}

std::string WiredBlocks::UnitOf(const Block& block) const {
  return UnitOfModule(model_.modules[block.parts[0].module]->module());
}

void WiredBlocks::Keep(Measurements& measured) const {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (!blocks_[i]->judged_here) continue;
    const std::string unit = UnitOf(*blocks_[i]);
    measured.Keep({.kind = "wiring", .name = fmt::format("{}", i), .unit = unit},
                  MeasuredAs<MlpWiring>::Write(blocks_[i]->wiring));
  }
}

Status WiredBlocks::Take(const Measurements& measured) {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const std::string unit = UnitOf(*blocks_[i]);
    const std::string number = fmt::format("{}", i);
    const MeasuredThing thing{.kind = "wiring", .name = number, .unit = unit};
    PREPACK_TRY_ASSIGN(MlpWiring wiring, measured.Taken<MlpWiring>(thing));
    if (wiring.fault && wiring.fault->module >= blocks_[i]->parts.size()) {
      return Malformed(unit, "the report of its part finds a fault in a module that there is not");
    }
    blocks_[i]->wiring = std::move(wiring);
  }
  return {};
}

Status WiredBlocks::Done(size_t module) {
  auto at = std::ranges::lower_bound(blocks_of_, std::pair(module, size_t{0}));
  for (; at != blocks_of_.end() && at->first == module; ++at) {
    Block& block = *blocks_[at->second];
    if (block.remaining.fetch_sub(1) != 1 || !block.judged_here) continue;
    PREPACK_TRY(Judge(block));
  }
  return {};
}

Result<NeuronVectors> WiredBlocks::ReadVectors(const Block& block, const Part& part) const {
  const QuantizedLinear& linear = *model_.modules[part.module];
  const uint64_t size = block.neurons * block.channels;
  std::vector<float> values(block.stretches * size);
  for (uint64_t i = 0; i < block.stretches; ++i) {
    const uint64_t first = part.first_row + i * part.apart;
    const std::span<float> stretch = std::span(values).subspan(i * size, size);
    if (!part.by_columns) {
      DequantizeBuffers buffers;
      PREPACK_TRY(DequantizeRows(linear, first, block.neurons, buffers, stretch));
    } else if (linear.reordered()) {
      PREPACK_TRY(ReadReorderedColumns(linear, first, block.neurons, stretch));
    } else {
      PREPACK_TRY(ReadColumns(linear, first, block.neurons, stretch));
    }
  }
  return MakeNeuronVectors(block.stretches * block.neurons, block.channels, std::move(values));
}

Status WiredBlocks::Judge(Block& block) const {
  std::array<NeuronVectors, 3> vectors;
  std::array<NamedVectors, 3> named;
  for (size_t i = 0; i < block.parts.size(); ++i) {
    const Part& part = block.parts[i];
    const QuantizedLinear& linear = *model_.modules[part.module];
    Result<NeuronVectors> read = ReadVectors(block, part);
    if (!read.ok()) {
      // Errors in the numbers themselves were found when all of them were read.
      const ErrorKind kind = read.status().kind();
      const bool known = kind == ErrorKind::kMalformed || kind == ErrorKind::kUnsupported;
      return known ? Status() : read.status();
    }
    vectors[i] = *std::move(read);
    const bool fused = block.parts[0].module == block.parts[1].module;
    const std::string_view name = LastPart(linear.module());
    named[i] = {.name = fused && !part.by_columns ? kFusedParts[i] : name, .vectors = &vectors[i]};
  }
  if (block.parts.size() == 3) {
    block.wiring = JudgeMlp(named);
  } else {
    block.wiring.fault = JudgePair({named[0], named[1]});
  }
  return {};
}

uint64_t WiredBlocks::MemoryOfThread() const {
  uint64_t most = 0;
  for (const auto& block : blocks_) {
    // Three sets of vectors, one of them in another order; and what they are read from.
    uint64_t bytes = 4 * block->stretches * block->neurons * block->channels * sizeof(float);
    for (const Part& part : block->parts) {
      const QuantizedLinear& linear = *model_.modules[part.module];
      bytes += MemoryOfRows(linear, part.by_columns ? kRowsAtOnce : block->neurons);
      if (linear.reordered()) bytes += (kWholeRowsAtOnce + 2) * linear.k() * sizeof(float);
    }
    most = std::max(most, bytes);
  }
  return most;
}

bool WiredBlocks::HasWiredPeers(const Block& block, size_t part) const {
  const auto role = [&](const Block& of) {
    return RoleOf(model_.modules[of.parts[part].module]->module());
  };
  const std::string wanted = role(block);
  size_t peers = 0;
  size_t wired = 0;
  for (const auto& other : blocks_) {
    if (other.get() == &block || other->parts.size() != 3 || role(*other) != wanted) continue;
    ++peers;
    wired += other->wiring.IsWired(part) ? 1U : 0U;
  }
  return wired >= kMinWiredPeers &&
         static_cast<double>(wired) >= kWiredPeers * static_cast<double>(peers);
}

std::vector<WiredBlocks::Fault> WiredBlocks::Faults() const {
  std::vector<Fault> faults;
  for (const auto& block : blocks_) {
    const std::optional<WiringFault>& fault = block->wiring.fault;
    if (!fault || (fault->needs_peers && !HasWiredPeers(*block, fault->module))) continue;
    faults.push_back({.module = block->parts[fault->module].module,
                      .message = fault->message,
                      .exchanged = fault->exchanged});
  }
  return faults;
}

}  // namespace prepack
