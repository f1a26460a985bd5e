// Finds the blocks of a model, reads some of their neurons, and has them judged.

#include "prepack/check/wired_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "prepack/check/check.h"
#include "prepack/check/measured.h"
#include "prepack/check/model_checks.h"
#include "prepack/container/json_fields.h"
#include "prepack/container/model_config.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/model/module_name.h"

namespace prepack {
namespace {

// Modules of an MLP by their leaf names: gate, up, down.
constexpr std::array<std::array<std::string_view, 3>, 2> kMlps = {
    {{"gate_proj", "up_proj", "down_proj"}, {"w1", "w3", "w2"}}};
// Gate and up in one module, gate first.
constexpr std::string_view kFusedMlp = "gate_up_proj";
constexpr std::array<std::string_view, 2> kFusedParts = {"gate half", "up half"};

// How many rows of the columns are read at once.
constexpr uint64_t kRowsAtOnce = 256;

// Input channels [first, first + neurons) of a module, one after the other.
Status ReadColumns(const QuantizedLinear& linear, uint64_t first, uint64_t neurons,
                   std::span<float> values) {
  const uint64_t n = linear.n();
  DequantizeBuffers buffers;
  std::vector<float> rows;
  // Panels of nibbles begin at even input channels.
  const uint64_t skipped = first % 2;
  const uint64_t k0 = first - skipped;
  const uint64_t cols = std::min(neurons + 2 * skipped, linear.k() - k0);
  for (uint64_t n0 = 0; n0 < n; n0 += kRowsAtOnce) {
    const PanelRange range{.n0 = n0, .rows = std::min(kRowsAtOnce, n - n0), .k0 = k0, .cols = cols};
    rows.resize(range.rows * cols);
    PREPACK_TRY(DequantizeInputs(linear, range, buffers, rows));
    for (uint64_t row = 0; row < range.rows; ++row) {
      const float* const from = &rows[row * cols + skipped];
      for (uint64_t i = 0; i < neurons; ++i) values[i * n + n0 + row] = from[i];
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
