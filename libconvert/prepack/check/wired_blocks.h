#pragma once

// The MLPs and attentions of a model, whose modules are judged by each other (wiring.h). A block is
// judged as soon as its modules were read, by some of its neurons, which are read once more: they
// are still in the page cache, and what has to be kept of a block is its finding.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "prepack/base/function_ref.h"
#include "prepack/base/status.h"
#include "prepack/check/wiring.h"
#include "prepack/container/checkpoint.h"
#include "prepack/formats/format.h"
#include "prepack/measure/measurements.h"

namespace prepack {

// So many neurons are read: fewer of long vectors, but enough to tell.
inline constexpr uint64_t kNeuronValues = uint64_t{1} << 17;
inline constexpr uint64_t kMostNeurons = 256;
inline constexpr uint64_t kFewestNeurons = 64;
inline constexpr uint64_t kFewestChannels = 128;
// Longer vectors would take memory that no model needs.
inline constexpr uint64_t kMostChannels = 32768;
// Other layers that have to show that a model is wired up as others are, and their share.
inline constexpr size_t kMinWiredPeers = 3;
inline constexpr double kWiredPeers = 0.75;

class WiredBlocks {
 public:
  // Both live longer than this.
  WiredBlocks(const Checkpoint& checkpoint, const QuantizedModel& model);

  // In a part: judges only the blocks whose first module is measured here, when those of its
  // modules were read that are.
  void KeepOnly(FunctionRef<bool(size_t module)> measured_here);
  // Writes down how these blocks go together, and takes what all parts wrote.
  void Keep(Measurements& measured) const;
  Status Take(const Measurements& measured);

  // To be called, from any thread, when all of a module was read. Judges its blocks with the last
  // of their modules. An error is one of the machine.
  Status Done(size_t module);

  // What judging a block takes at most, in bytes.
  uint64_t MemoryOfThread() const;

  struct Fault {
    size_t module = 0;  // index in the model
    std::string message;
    bool exchanged = false;
  };
  // The faults of all blocks. Call it when all modules are done.
  std::vector<Fault> Faults() const;

 private:
  struct Part {
    size_t module = 0;
    uint64_t first_row = 0;   // of output channels that are neurons
    bool by_columns = false;  // its input channels are neurons
    uint64_t apart = 0;       // from one stretch to the next
  };
  struct Block {
    std::vector<Part> parts;  // gate, up, down; or v, o
    uint64_t neurons = 0;     // to be read: of each stretch
    uint64_t stretches = 1;
    uint64_t channels = 0;
    std::atomic<size_t> remaining{0};
    bool judged_here = true;
    MlpWiring wiring;
  };

  void AddMlp(size_t gate, size_t up, size_t down, uint64_t up_row);
  void AddAttention(const Json& config, size_t v, size_t o);
  void Add(std::vector<Part> parts, uint64_t neurons, uint64_t stretches, uint64_t channels);
  Result<NeuronVectors> ReadVectors(const Block& block, const Part& part) const;
  Status Judge(Block& block) const;
  std::string UnitOf(const Block& block) const;
  // Whether in most other layers the part of this number goes with the others.
  bool HasWiredPeers(const Block& block, size_t part) const;

  const QuantizedModel& model_;
  std::vector<std::unique_ptr<Block>> blocks_;
  // Ascending: most modules of a large model may be in none.
  std::vector<std::pair<size_t, size_t>> blocks_of_;  // module, number of its block
};

}  // namespace prepack
