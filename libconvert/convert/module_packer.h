#ifndef PREPACK_CONVERT_MODULE_PACKER_H_
#define PREPACK_CONVERT_MODULE_PACKER_H_

// Packs one module strip by strip: from the reader, through the layout, to its place in the output.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/isa.h"
#include "base/status.h"
#include "canonical/panel_shape.h"
#include "container/safetensors_writer.h"
#include "convert/output_shards.h"
#include "convert/plan.h"

namespace prepack {

// Scratch memory of one thread, reused from strip to strip.
struct PanelBuffers {
  std::vector<std::byte> panel;
  std::vector<std::byte> packed;
  std::vector<float> scales;
  std::vector<uint8_t> zero_points;
};

class ModulePacker {
 public:
  // The arguments must outlive the packer.
  ModulePacker(const ModulePlan& module, const PackedModuleOutput& output,
               std::vector<SafetensorsWriter>& writers, Isa isa);

  uint64_t n() const { return module_.linear->n(); }
  // Rows to hand to PackCodes and PackScales at a time; only the last call may have fewer.
  uint64_t code_rows() const { return panel_.rows; }
  uint64_t scale_rows() const { return scale_rows_; }

  // Packs the codes (the scales and zero points) of output channels [n0, n0 + rows). Calls for
  // different rows may run at the same time, each with its own buffers.
  Status PackCodes(uint64_t n0, uint64_t rows, PanelBuffers& buffers) const;
  Status PackScales(uint64_t n0, uint64_t rows, PanelBuffers& buffers) const;

 private:
  Status PackZeroPoints(uint64_t n0, uint64_t rows, PanelBuffers& buffers) const;
  Status WritePart(PartRole role, const Placement& placement,
                   std::span<const std::byte> packed) const;
  bool HasPart(PartRole role) const;

  const ModulePlan& module_;
  const PackedModuleOutput& output_;
  std::vector<SafetensorsWriter>& writers_;
  Isa isa_;
  PanelShape panel_;
  uint64_t scale_rows_;
};

// Rows of scales [rows, G] to handle at a time, a multiple of the layout's rows_multiple: about 1
// MiB of f32, so that the runs that a transposing layout writes are long.
uint64_t ScaleRows(const Layout& layout, const PackRequest& request);

}  // namespace prepack

#endif  // PREPACK_CONVERT_MODULE_PACKER_H_
