#include "verify/file_integrity.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "base/cancellation.h"
#include "base/hash.h"
#include "base/page_buffer.h"
#include "container/safetensors.h"
#include "convert/output_hash.h"
#include "convert/output_shards.h"

namespace prepack {
namespace {

// The check of one file.
class FileCheck {
 public:
  FileCheck(const PackedFolder& folder, const std::string& name, const FileRecord& record,
            const std::vector<OwnedTensor>& tensors, const ModuleSample* sample, Progress& progress,
            std::vector<Problem>& problems)
      : folder_(folder),
        name_(name),
        record_(record),
        tensors_(tensors),
        sample_(sample),
        progress_(progress),
        problems_(problems) {}

  Status Run();

 private:
  void Fail(std::string message) { problems_.push_back({"", name_, std::move(message)}); }
  void FailTensor(const OwnedTensor& owned, std::string message) {
    problems_.push_back({owned.module, owned.owner, std::move(message)});
  }
  void FailModules(const std::string& what);
  void FailFile(const std::string& what) {
    Fail(what);
    FailModules(what);
  }
  Status HashAll(const File& file);
  size_t CheckTensors();
  void CheckHeader(const SafetensorsHeader& header);
  void CheckAlignment(const OwnedTensor& owned);

  const PackedFolder& folder_;
  const std::string& name_;
  const FileRecord& record_;
  const std::vector<OwnedTensor>& tensors_;
  const ModuleSample* sample_;
  Progress& progress_;
  std::vector<Problem>& problems_;

  std::string file_hash_;
  // Of the tensors that the header speaks of, by offset in the file and size.
  std::map<std::pair<uint64_t, uint64_t>, std::string> hashes_;
  std::optional<Result<SafetensorsHeader>> header_;  // of a shard
};

Result<std::string> HashTensorRecord(const PackedFolder& folder, const TensorRecord& tensor) {
  constexpr uint64_t kChunkBytes = kHashedPieceBytes;
  PageBuffer buffer(std::min(kChunkBytes, tensor.bytes()));
  Xxh3Hasher hasher;
  for (uint64_t offset = 0; offset < tensor.bytes(); offset += kChunkBytes) {
    if (CancellationRequested()) return Interrupted(tensor.file);
    const auto chunk = std::span(buffer).first(std::min(kChunkBytes, tensor.bytes() - offset));
    if (Status status = folder.Read(tensor, offset, chunk); !status.ok()) return status;
    hasher.Update(chunk);
  }
  return hasher.HexDigest();
}

// Something that hits all that lies in the file.
void FileCheck::FailModules(const std::string& what) {
  std::set<std::string> modules;
  for (const OwnedTensor& owned : tensors_) {
    if (!owned.module.empty()) modules.insert(owned.module);
  }
  for (const std::string& module : modules) {
    problems_.push_back({module, fmt::format("module {}", module),
                         fmt::format("parts of it are in {}: {}", name_, what)});
  }
}

// Reads the file once: for its own hash and those of its tensors, where its header can be read.
// With a sample, of a shard only the header.
Status FileCheck::HashAll(const File& file) {
  progress_.BeginItem(name_);
  if (IsShard(name_)) header_.emplace(ReadSafetensorsHeader(file));
  if (IsShard(name_) && sample_ != nullptr) {
    file_hash_ = record_.xxh3_128;
    return {};
  }
  if (!header_ || !header_->ok()) {
    const Result<FileRecord> hashed = HashFile(file, progress_);
    if (hashed.ok()) file_hash_ = hashed->xxh3_128;
    return hashed.status();
  }
  const SafetensorsHeader& header = **header_;
  Result<ShardHashes> hashed = HashShard(file, header, progress_);
  if (!hashed.ok()) return hashed.status();
  file_hash_ = hashed->file.xxh3_128;
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    const TensorInfo& tensor = header.tensors[i];
    hashes_.emplace(std::pair(header.data_start + tensor.begin, tensor.bytes()),
                    hashed->tensors[i].Hex());
  }
  return {};
}

// Returns how many tensors are not what the manifest says. Those whose place the header does not
// know, or that it could not tell, are read once more.
size_t FileCheck::CheckTensors() {
  size_t damaged = 0;
  for (const OwnedTensor& owned : tensors_) {
    if (!IsHashed(owned, sample_)) continue;
    const auto known = hashes_.find({owned.tensor->offset, owned.tensor->bytes()});
    const Result<std::string> hash = known != hashes_.end()
                                         ? Result<std::string>(known->second)
                                         : HashTensorRecord(folder_, *owned.tensor);
    if (sample_ != nullptr) progress_.Add(owned.tensor->bytes());
    if (!hash.ok()) {
      FailTensor(owned, fmt::format("cannot be read: {}", hash.status().ToString()));
      ++damaged;
    } else if (*hash != owned.tensor->xxh3_128) {
      FailTensor(owned, fmt::format("its bytes in {} are not what was written (xxh3 found {}, "
                                    "expected {})",
                                    name_, *hash, owned.tensor->xxh3_128));
      ++damaged;
    }
  }
  return damaged;
}

// What docs/packed-folder.md promises to whoever maps the file.
void FileCheck::CheckAlignment(const OwnedTensor& owned) {
  constexpr uint64_t kLine = 64;
  const TensorRecord& tensor = *owned.tensor;
  const uint64_t bytes = tensor.bytes();
  const uint64_t unit = bytes % kLine == 0 ? kLine : std::max(DTypeBits(tensor.dtype) / 8, 1U);
  if (bytes == 0 || tensor.offset % unit == 0) return;
  FailTensor(owned, fmt::format("it begins at byte {} of {}, which is not a multiple of {}",
                                tensor.offset, name_, unit));
}

// The header is what loaders read: it must say what the manifest says.
void FileCheck::CheckHeader(const SafetensorsHeader& header) {
  if (header.metadata != ShardMetadata())
    Fail("the metadata in its header is not what convert writes");
  constexpr uint64_t kPage = 4096;
  if (header.data_start % kPage != 0) {
    Fail(fmt::format("its data begins at byte {}, which is not a multiple of {}", header.data_start,
                     kPage));
  }
  std::map<std::string_view, const OwnedTensor*> expected;
  for (const OwnedTensor& owned : tensors_) expected.emplace(owned.tensor->tensor, &owned);
  for (const TensorInfo& tensor : header.tensors) {
    const auto it = expected.find(tensor.name);
    if (it == expected.end()) {
      Fail(fmt::format("tensor {} is not in the manifest", Printable(tensor.name)));
      continue;
    }
    const TensorRecord& record = *it->second->tensor;
    if (record.dtype != tensor.dtype || record.shape != tensor.shape ||
        record.offset != header.data_start + tensor.begin) {
      FailTensor(*it->second, fmt::format("the header of {} gives it another dtype, shape or "
                                          "offset than the manifest",
                                          name_));
    }
    CheckAlignment(*it->second);
    expected.erase(it);
  }
  for (const auto& [name, owned] : expected) {
    FailTensor(*owned, fmt::format("the header of {} does not have it", name_));
  }
}

Status FileCheck::Run() {
  const File* file = folder_.FindFile(name_);
  if (file == nullptr) {
    FailFile("the file is missing");
    return {};
  }
  if (file->size() != record_.bytes) {
    const std::string what =
        fmt::format("its size is wrong (found {} bytes, expected {})", file->size(), record_.bytes);
    Fail(what);
    if (sample_ != nullptr || CheckTensors() == 0) FailModules(what);
    return {};
  }
  if (Status status = HashAll(*file); !status.ok()) return status;
  // Consumers rely on the hashes of tensors: they must be right in a sound file, too.
  if (CheckTensors() != 0) return {};
  if (file_hash_ != record_.xxh3_128) {
    FailFile(tensors_.empty() ? "its bytes are not what was written"
                              : "its header is not what was written");
    return {};
  }
  if (!IsShard(name_)) {
    if (!tensors_.empty()) FailFile("it is no shard of weights");
    return {};
  }
  if (header_->ok()) {
    CheckHeader(**header_);
  } else {
    FailFile(header_->status().ToString());
  }
  return {};
}

}  // namespace

TensorsByFile GroupByFile(const Manifest& manifest) {
  TensorsByFile files;
  for (const auto& [name, module] : manifest.modules) {
    for (const auto& [part, tensor] : module.parts) {
      files[tensor.file].push_back({&tensor, name, fmt::format("module {}: part {}", name, part)});
    }
  }
  for (const TensorRecord& tensor : manifest.tensors) {
    files[tensor.file].push_back({&tensor, "", fmt::format("tensor {}", tensor.tensor)});
  }
  return files;
}

bool IsShard(const std::string& name) {
  return name.ends_with(".safetensors");
}

Status CheckFile(const PackedFolder& folder, const std::string& name, const FileRecord& record,
                 const std::vector<OwnedTensor>& tensors, const ModuleSample* sample,
                 Progress& progress, std::vector<Problem>& problems) {
  return FileCheck(folder, name, record, tensors, sample, progress, problems).Run();
}

}  // namespace prepack
