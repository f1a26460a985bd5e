#pragma once

// A packed folder opened for reading: the manifest and the files it names.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "prepack/base/function_ref.h"
#include "prepack/base/memory.h"
#include "prepack/base/status.h"
#include "prepack/gemm/kernel_model.h"
#include "prepack/io/file.h"
#include "prepack/layouts/layout.h"
#include "prepack/model/stacked_linear.h"
#include "prepack/packed/manifest.h"

namespace prepack {

class PackedFolder {
 public:
  // Reads the manifest and opens the files of the folder that exist.
  static Result<PackedFolder> Open(const std::filesystem::path& path);
  // A folder that is being made at `path`: its shards are there, as large as they will be. The
  // manifest has all but hashes, and what only is known in the end.
  static Result<PackedFolder> OpenUnfinished(const std::filesystem::path& path, Manifest manifest);
  // When it has been made and lies at `path`: takes its manifest from there. References to the
  // names and records of modules stay valid. kMalformed if modules or tensors are not those that
  // were to be made.
  Status Complete(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  // Null when the manifest names the file but it is not there.
  const File* FindFile(const std::string& name) const;
  // Fills `out` from byte `offset` of the tensor.
  Status Read(const TensorRecord& tensor, uint64_t offset, std::span<std::byte> out) const;
  // The file that holds these bytes of the tensor.
  Result<const File*> FileOf(const TensorRecord& tensor, uint64_t offset, uint64_t bytes) const;
  // The bytes of the tensor, mapped into memory.
  Result<PinnedBytes> Pin(const TensorRecord& tensor) const;
  // See File::MapTogether.
  void MapTogether(const TensorRecord& tensor) const;
  // Calls `work` with `bytes` of it from `offset` on, mapped into memory; see File::VisitAt.
  Status VisitPiece(const TensorRecord& tensor, uint64_t offset, uint64_t bytes,
                    ByteVisitor work) const;

 private:
  PackedFolder() = default;
  Status OpenFiles();

  std::filesystem::path path_;
  Manifest manifest_;
  std::map<std::string, File> files_;
};

// Where the manifest says that the source lies, if a checkpoint is there now. It need not be the
// one that the folder was made from.
std::optional<std::filesystem::path> RecordedSource(const PackedFolder& folder);

// A tile as it is visited: its bytes are the codes', which padding may belong to, and then those of
// the sums that some layouts keep elsewhere.
struct VisitedTile {
  std::span<const std::byte> codes;
  std::span<const std::byte> sums;
};

// One packed module, unpacked row by row into the canonical layout.
class PackedModule {
 public:
  // Finds the layout and checks that the parts are those that it makes of such a module:
  // kUnsupported for an unknown layout or version, kMalformed for parts that do not fit. The folder
  // and the record must outlive the module.
  static Result<PackedModule> Open(const PackedFolder& folder, const std::string& name,
                                   const ModuleRecord& record);

  const std::string& name() const { return *name_; }
  const std::filesystem::path& folder() const { return folder_->path(); }
  const Layout& layout() const { return *layout_; }
  const PackRequest& request() const { return request_; }
  // The modules of the source that it was made of, in the order of their output channels: mostly
  // itself alone.
  const std::vector<FusedMember>& members() const { return members_; }
  // For how many NUMA nodes the module that this is a share of was cut; 1: it is no share.
  uint64_t nodes() const { return nodes_; }
  const StackedEnds& member_ends() const { return member_ends_; }

  const std::vector<PartSpec>& parts() const { return specs_; }

  // One of the experts that are stacked in it, by its number: its slice of every part is what a
  // module of its own would be packed to. What it is made from must outlive it.
  PackedModule OneExpert(uint64_t expert) const;
  // Which expert of the stack this is; nullopt: it is all of a module.
  std::optional<uint64_t> expert() const { return expert_; }

  // `packed` is scratch memory throughout. A tile as it lies in the folder, and a panel of it.
  Status ReadTile(const PanelRange& tile, PageBuffer& packed) const;
  // The same without a copy where the codes lie in one piece: calls `work` with its bytes, mapped
  // into memory, see File::VisitAt, or read into `packed`.
  Status VisitTile(const PanelRange& tile, PageBuffer& packed,
                   FunctionRef<void(const VisitedTile& bytes)> work) const;
  void UnpackPanel(const PanelRange& tile, const PanelRange& panel,
                   std::span<const std::byte> packed, std::span<std::byte> codes) const;
  // Codes of output channels [n0, n0 + rows) and of a slab of the input channels; n0 is a multiple
  // of cut().rows, and the slab begins at one of cut().cols.
  Status ReadCodes(uint64_t n0, uint64_t rows, const InputSlab& slab, PageBuffer& packed,
                   std::span<std::byte> codes) const;
  // Scales and zero points [rows, G]; n0 is a multiple of cut().strip_rows.
  Status ReadScales(uint64_t n0, uint64_t rows, PageBuffer& packed, std::span<float> scales) const;
  Status ReadZeroPoints(uint64_t n0, uint64_t rows, PageBuffer& packed,
                        std::span<uint8_t> zero_points) const;
  // Raw bytes of a part, which must exist.
  Status ReadPart(PartRole role, uint64_t offset, std::span<std::byte> out) const;
  // All bytes of a part; none when the module has no such part.
  Status ReadWholePart(PartRole role, PageBuffer& out) const;
  // All bytes of the weight, mapped into memory.
  Result<PinnedBytes> PinWeight() const { return folder_->Pin(parts_.at(PartRole::kWeight)); }

 private:
  PackedModule() = default;
  Status ReadPlaced(PartRole role, const Placement& placement, PageBuffer& packed) const;
  Status ReadHeldScales(uint64_t n0, uint64_t rows, PageBuffer& packed,
                        std::span<float> scales) const;

  const PackedFolder* folder_ = nullptr;
  const std::string* name_ = nullptr;
  const Layout* layout_ = nullptr;
  PackRequest request_;
  std::vector<FusedMember> members_;
  StackedEnds member_ends_;
  std::vector<PartSpec> specs_;
  std::map<PartRole, TensorRecord> parts_;
  std::optional<uint64_t> expert_;
  uint64_t nodes_ = 1;
};

}  // namespace prepack
