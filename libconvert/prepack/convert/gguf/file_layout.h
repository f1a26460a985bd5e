#pragma once

// How the tensors of a plan lie in the files of a model, behind their headers.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/convert/gguf/plan.h"

namespace prepack::gguf {

class FileLayout {
 public:
  // Some tensors of the plan, in a file of their own.
  struct Shard {
    size_t first = 0;
    size_t count = 0;
    uint64_t header_bytes = 0;
    uint64_t bytes = 0;  // with the header
  };

  // `shard_bytes`: of tensors in a file; 0: all are in one. The plan must outlive it.
  static Result<FileLayout> Make(const Plan& plan, uint64_t shard_bytes);

  const std::vector<Shard>& shards() const { return shards_; }
  uint64_t alignment() const { return alignment_; }
  uint64_t bytes() const;  // of all files
  // What stands in front of the tensors of a file. The first one says which manifest it was made
  // with.
  std::string Header(size_t no, const std::string& manifest_hash) const;

 private:
  FileLayout(const Plan& plan, bool split) : plan_(plan), split_(split) {}
  Status ReadMetadata();
  void Divide(uint64_t most);

  const Plan& plan_;
  bool split_;
  std::string entries_;  // of the metadata, as the converter wrote them
  uint64_t entry_count_ = 0;
  uint64_t alignment_ = 0;
  std::vector<Shard> shards_;
};

}  // namespace prepack::gguf
