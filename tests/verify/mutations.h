#pragma once

// What can go wrong when weights are packed, done to a good packed folder. A mutation finds what to
// change by the layout's own closed form, so that one and the same works for every layout.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "formats/checkpoint_builder.h"
#include "prepack/packed/folder.h"

namespace prepack::testing {

// A good packed folder and its source, of which something is about to be changed. All in one shard.
class Mutant {
 public:
  // `other` is a module of the same shape. The hashes stay as they were until Rehash().
  Mutant(std::filesystem::path folder, std::filesystem::path source, std::string module,
         std::string other);
  Mutant(const Mutant&) = delete;
  Mutant& operator=(const Mutant&) = delete;

  const std::filesystem::path& source() const { return source_; }
  const std::string& module() const { return module_; }
  const Layout& layout() const { return packed_.layout(); }
  const PackRequest& request() const { return packed_.request(); }
  bool Has(PartRole role) const { return FindPart(packed_.parts(), role) != nullptr; }

  std::vector<std::byte> Part(PartRole role) const;
  std::vector<std::byte> PartOfOther(PartRole role) const;
  // These say whether anything became different.
  bool SetPart(PartRole role, const std::vector<std::byte>& bytes);
  bool SetScales(const std::vector<float>& scales);             // [N, G]
  bool SetZeroPoints(const std::vector<uint8_t>& zero_points);  // [N, G]
  std::vector<float> Scales() const;
  std::vector<uint8_t> ZeroPoints() const;

  // Takes a part out of the shard and the manifest.
  void DropPart(PartRole role);
  // Gives the module a part that it does not have.
  void AddOrder(const std::vector<int32_t>& order);
  // Changes the manifest, but not its hash of itself.
  void Edit(const std::function<void(Manifest& manifest)>& edit);
  // Flips the lowest bit of a tensor that passed through.
  void FlipPassedThrough();
  void CutShard(uint64_t bytes);
  // Makes the manifest say what the folder now holds: sizes, places, hashes.
  void Rehash();

 private:
  std::filesystem::path Shard() const;
  void RewriteShard(const std::function<void(TestCheckpoint& shard)>& edit);

  std::filesystem::path folder_path_;
  std::filesystem::path source_;
  std::string module_;
  std::string other_;
  PackedFolder folder_;  // as it was
  Manifest manifest_;
  PackedModule packed_;
};

struct Mutation {
  const char* name = "";
  // False: the module has nothing to change in this way.
  bool (*apply)(Mutant& mutant) = nullptr;
};

std::span<const Mutation> AllMutations();

}  // namespace prepack::testing
