#pragma once

// What one thread has packed but not yet written. The kernel lets only one thread at a time write
// to a file: a thread that finds the file busy goes on packing and later writes several pieces at
// once, instead of waiting.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "prepack/base/function_ref.h"
#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/container/safetensors_writer.h"
#include "prepack/convert/output_shards.h"
#include "prepack/convert/plan.h"
#include "prepack/layouts/layout.h"
#include "prepack/model/panel_shape.h"
#include "prepack/packed/output_hash.h"

namespace prepack {

// With so many pieces in the batch, the file is waited for.
inline constexpr size_t kMaxWaitingPieces = 8;
// Larger ones never wait: they would take too much memory.
inline constexpr uint64_t kMaxWaitingBytes = 256ULL * 1024;

class WriteBatch {
 public:
  // Writes `bytes` to their places in tensor `index` of the shard, now or later. They may be taken:
  // then `bytes` is another buffer afterwards, of any size. An error may be that of an earlier
  // piece.
  Status Add(SafetensorsWriter& shard, size_t index, const Placement& placement, PageBuffer& bytes);
  // Writes what is left.
  Status Flush();

 private:
  struct Piece {
    size_t index = 0;
    Placement placement;
    PageBuffer bytes;
  };

  Status WriteWaiting();

  SafetensorsWriter* shard_ = nullptr;  // of all pieces
  std::vector<Piece> pieces_;           // the first `count_` wait, the others are spare
  size_t count_ = 0;
};

// Packs one module piece by piece: from the reader, through the layout, to its place in the output.
// Tiles of the weight, strips of scales and zero points, and the small parts are independent.

// Scratch memory of one thread, reused from piece to piece.
struct PanelBuffers {
  PageBuffer panel;
  PageBuffer packed;
  WriteBatch writes;
  std::vector<float> scales;
  std::vector<uint8_t> zero_points;
  TileParameters of_tile;
  std::vector<int32_t> sums;
  uint64_t written = 0;  // bytes of parts that went through these buffers so far
};

class ModulePacker {
 public:
  // The arguments must outlive the packer.
  ModulePacker(const Checkpoint& checkpoint, const ModulePlan& module, const OutputUnit& output,
               std::vector<SafetensorsWriter>& writers);

  // Tiles and strips are counted from 0. Calls may run at the same time, each with its own buffers.
  size_t tiles() const { return grid_.size(); }
  size_t strips() const;
  // Is this source tensor offered to PackTile's hashes, as far as its tiles come in order?
  bool Offers(const StoredTensor& tensor) const {
    return std::ranges::count(codes_in_source_, &tensor) != 0;
  }
  // Packs a tile of the weight. What is read and written is offered to `hashes`, unless null. Here
  // and below, what was packed may stay in buffers.writes; buffers.written counts it already.
  Status PackTile(size_t index, PanelBuffers& buffers, UnitHashes* hashes) const;
  // Packs the scales, zero points and sums of some output channels.
  Status PackStrip(size_t index, PanelBuffers& buffers) const;
  // Packs what is left: bias, order of inputs, static scales of activations.
  Status PackSmallParts(PanelBuffers& buffers) const;

  // Scales that were rounded to another value, once all strips are packed.
  uint64_t rounded_scales() const { return *rounded_scales_; }

 private:
  // One way to get at the codes of a panel; `use` is called with them at most once.
  using CodesUser = FunctionRef<void(std::span<const std::byte> codes)>;
  void FindCodesInSource(const QuantizedLinear& linear);
  Status UseCodes(const PanelRange& panel, PageBuffer& buffer, UnitHashes* hashes,
                  CodesUser use) const;
  Status PackPanel(const PackJob& job, PanelBuffers& buffers, UnitHashes* hashes) const;
  Status PackScales(uint64_t n0, uint64_t rows, PanelBuffers& buffers) const;
  // Scales [rows, G], and counts those that are rounded.
  Status PackAndCount(uint64_t n0, uint64_t rows, std::span<const float> scales,
                      std::span<std::byte> packed) const;
  // Of a layout whose weight holds scales and bias.
  Status CheckHeldScales(const PanelRange& tile, PanelBuffers& buffers) const;
  Result<std::span<const float>> HeldBias() const;
  // Does the kernel multiply with the scales in the buffers as they are?
  Status CheckScaleLimits(uint64_t n0, PanelBuffers& buffers) const;
  Status PackZeroPoints(uint64_t n0, uint64_t rows, PanelBuffers& buffers) const;
  Status PackWeightSums(uint64_t n0, uint64_t rows, PanelBuffers& buffers) const;
  Status WritePacked(PartRole role, const Placement& placement, PanelBuffers& buffers,
                     UnitHashes* hashes = nullptr) const;
  bool HasPart(PartRole role) const { return FindPart(module_.parts, role) != nullptr; }

  const Checkpoint& checkpoint_;
  const ModulePlan& module_;
  const OutputUnit& output_;
  std::vector<SafetensorsWriter>& writers_;
  TileShape shape_;
  TileGrid grid_;
  uint64_t strip_rows_;
  // That panels are used from, where they can be, by name.
  std::vector<const StoredTensor*> codes_in_source_;
  struct Bias {
    std::once_flag once;
    Status status;
    std::vector<float> values;
  };
  std::unique_ptr<Bias> bias_;
  std::unique_ptr<std::atomic<uint64_t>> rounded_scales_;
};

}  // namespace prepack
