#include "verify/integrity.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/hash.h"
#include "base/parallel.h"
#include "container/checkpoint.h"
#include "container/safetensors.h"
#include "convert/output_hash.h"
#include "layouts/fingerprint.h"
#include "layouts/table.h"

namespace prepack {
namespace {

// A tensor of the output and what it belongs to, for the message.
struct OwnedTensor {
  const TensorRecord* tensor;
  std::string owner;  // "module a.b: part weight", or "tensor a.b"
};

std::vector<OwnedTensor> TensorsOfFile(const Manifest& manifest, const std::string& file) {
  std::vector<OwnedTensor> tensors;
  for (const auto& [name, module] : manifest.modules) {
    for (const auto& [part, tensor] : module.parts) {
      if (tensor.file == file) {
        tensors.push_back({&tensor, fmt::format("module {}: part {}", name, part)});
      }
    }
  }
  for (const TensorRecord& tensor : manifest.tensors) {
    if (tensor.file == file) {
      tensors.push_back({&tensor, fmt::format("tensor {}", tensor.tensor)});
    }
  }
  return tensors;
}

Result<std::string> HashTensorRecord(const PackedFolder& folder, const TensorRecord& tensor) {
  constexpr uint64_t kChunkBytes = 1 << 20;
  std::vector<std::byte> buffer(std::min(kChunkBytes, tensor.bytes()));
  Xxh3Hasher hasher;
  for (uint64_t offset = 0; offset < tensor.bytes(); offset += kChunkBytes) {
    const auto chunk = std::span(buffer).first(std::min(kChunkBytes, tensor.bytes() - offset));
    if (Status status = folder.Read(tensor, offset, chunk); !status.ok()) return status;
    hasher.Update(chunk);
  }
  return hasher.HexDigest();
}

// Hashes every tensor of a file; returns how many are not what the manifest says.
size_t CheckTensors(const PackedFolder& folder, const std::string& file,
                    const std::vector<OwnedTensor>& tensors, std::vector<Problem>& problems) {
  size_t damaged = 0;
  for (const OwnedTensor& owned : tensors) {
    const Result<std::string> hash = HashTensorRecord(folder, *owned.tensor);
    if (!hash.ok()) {
      problems.push_back(
          {"", owned.owner, fmt::format("cannot be read: {}", hash.status().ToString())});
      ++damaged;
    } else if (*hash != owned.tensor->xxh3_128) {
      problems.push_back({"", owned.owner,
                          fmt::format("its bytes in {} are not what was written (xxh3 "
                                      "found {}, expected {})",
                                      file, *hash, owned.tensor->xxh3_128)});
      ++damaged;
    }
  }
  return damaged;
}

// Finds which tensors of a damaged file are damaged. When none is, the damage is in the header,
// and every tensor of the file is affected.
void LocateDamage(const PackedFolder& folder, const std::string& file,
                  std::vector<Problem>& problems) {
  const std::vector<OwnedTensor> tensors = TensorsOfFile(folder.manifest(), file);
  if (CheckTensors(folder, file, tensors, problems) != 0) return;
  std::vector<std::string> owners;
  owners.reserve(tensors.size());
  for (const OwnedTensor& owned : tensors) owners.push_back(owned.owner);
  problems.push_back({"", file,
                      tensors.empty()
                          ? std::string("its bytes are not what was written")
                          : fmt::format("its header is not what was written; it holds {}",
                                        fmt::join(owners, ", "))});
}

Status CheckFileBytes(const PackedFolder& folder, const std::string& name, const FileRecord& record,
                      Progress& progress, std::vector<Problem>& problems) {
  const File* file = folder.FindFile(name);
  if (file == nullptr) {
    problems.push_back({"", name, "the file is missing"});
  } else if (file->size() != record.bytes) {
    problems.push_back({"", name,
                        fmt::format("its size is wrong (found {} bytes, expected {})", file->size(),
                                    record.bytes)});
    LocateDamage(folder, name, problems);
  } else {
    const Result<FileRecord> hashed = HashFile(*file, progress);
    if (!hashed.ok()) return hashed.status();
    if (hashed->xxh3_128 != record.xxh3_128) {
      LocateDamage(folder, name, problems);
    } else {  // consumers rely on the hashes of tensors: they must be right, too
      CheckTensors(folder, name, TensorsOfFile(folder.manifest(), name), problems);
    }
  }
  return {};
}

// The header is what loaders read: it must say what the manifest says.
void CheckHeader(const PackedFolder& folder, const std::string& name, LevelResult& result) {
  const File* file = folder.FindFile(name);
  if (file == nullptr) return;
  const Result<SafetensorsHeader> header = ReadSafetensorsHeader(*file);
  if (!header.ok()) {
    result.Fail(name, header.status().ToString());
    return;
  }
  std::vector<OwnedTensor> expected = TensorsOfFile(folder.manifest(), name);
  std::ranges::sort(expected, {}, [](const OwnedTensor& t) { return t.tensor->tensor; });
  for (const TensorInfo& tensor : header->tensors) {
    const auto it = std::ranges::lower_bound(expected, tensor.name, {},
                                             [](const OwnedTensor& t) { return t.tensor->tensor; });
    if (it == expected.end() || it->tensor->tensor != tensor.name) {
      result.Fail(name, fmt::format("tensor {} is not in the manifest", Printable(tensor.name)));
      continue;
    }
    const TensorRecord& record = *it->tensor;
    if (record.dtype != tensor.dtype || record.shape != tensor.shape ||
        record.offset != header->data_start + tensor.begin) {
      result.Fail(it->owner, fmt::format("the header of {} gives it another dtype, shape or offset "
                                         "than the manifest",
                                         name));
    }
  }
  if (header->tensors.size() != expected.size()) {
    result.Fail(name, fmt::format("it holds {} tensors, the manifest lists {}",
                                  header->tensors.size(), expected.size()));
  }
}

void CheckFingerprints(const Manifest& manifest, Isa isa, LevelResult& result) {
  for (const auto& [id, record] : manifest.layouts) {
    const Layout* layout = FindLayout(id);
    if (layout == nullptr) {
      result.Fail(fmt::format("layout {}", id), "this version of prepack does not know it");
      continue;
    }
    const std::string today = PackingFingerprint(*layout, isa);
    if (record.version != layout->version || record.fingerprint != today) {
      result.Fail(fmt::format("layout {}", id),
                  fmt::format("it was written as version {} with fingerprint {}, today it is "
                              "version {} with {}: convert the source again",
                              record.version, record.fingerprint, layout->version, today));
    }
  }
}

// Loaders take every shard they see: one that the manifest does not know must not lie there.
void CheckStrayShards(const PackedFolder& folder, LevelResult& result) {
  std::error_code error;
  std::filesystem::directory_iterator entry(folder.path(), error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (entry->path().extension() == ".safetensors" && !folder.manifest().files.contains(name)) {
      result.Fail(Printable(name), "the folder holds a shard that the manifest does not know");
    }
  }
  if (error) result.Fail(folder.path().string(), "cannot list the folder: " + error.message());
}

// Every module must be what its layout makes, and the folder one that loaders take as a checkpoint.
void CheckModules(const PackedFolder& folder, Isa isa, LevelResult& result) {
  for (const auto& [name, record] : folder.manifest().modules) {
    const Result<PackedModule> module = PackedModule::Open(folder, name, record, isa);
    if (!module.ok()) result.Fail(module.status().where(), module.status().ToString());
  }
  if (result.state == LevelState::kFailed) return;  // the reasons are there already
  const Result<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
  if (!checkpoint.ok()) result.Fail(folder.path().string(), checkpoint.status().ToString());
  if (!folder.manifest().files.contains("config.json")) {
    result.Fail("config.json", "the manifest does not list it");
  }
}

}  // namespace

Result<LevelResult> CheckIntegrity(const PackedFolder& folder, Isa isa, unsigned threads,
                                   Progress& progress) {
  const Manifest& manifest = folder.manifest();
  std::vector<std::string> names;
  uint64_t total = 0;
  for (const auto& [name, record] : manifest.files) {
    names.push_back(name);
    total = CheckedAdd(total, record.bytes).value_or(UINT64_MAX);
  }
  progress.Begin("integrity", total);
  std::vector<std::vector<Problem>> problems(names.size());
  Status status = ParallelFor(names.size(), threads, [&](size_t index, unsigned) {
    return CheckFileBytes(folder, names[index], manifest.files.at(names[index]), progress,
                          problems[index]);
  });
  if (!status.ok()) return status;

  LevelResult result{.state = LevelState::kPassed};
  for (size_t i = 0; i < names.size(); ++i) {
    for (Problem& problem : problems[i]) {
      result.Fail(std::move(problem.where), std::move(problem.message));
    }
    const bool sound = problems[i].empty();
    if (sound && names[i].ends_with(".safetensors")) CheckHeader(folder, names[i], result);
  }
  CheckStrayShards(folder, result);
  CheckFingerprints(manifest, isa, result);
  CheckModules(folder, isa, result);
  return result;
}

}  // namespace prepack
