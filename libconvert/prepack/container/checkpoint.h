#pragma once

// A checkpoint comes from anywhere, and its side files are copied into the output: a link in it to
// /home/me/.ssh/id_rsa would publish that file with the packed model. So links are followed only
// within the folder, and into the blobs of a hub cache, which holds every file once and has
//
//     models--ORG--NAME/snapshots/REVISION/model.safetensors -> ../../blobs/HASH

#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prepack/base/hash.h"
#include "prepack/base/status.h"
#include "prepack/container/json.h"
#include "prepack/container/safetensors.h"
#include "prepack/io/file.h"

namespace prepack {

// A Hugging-Face-style folder: config.json, *.safetensors (one, or several with an index), and
// side files such as the tokenizer. Opened read-only; only headers are read at first.
//
// Checked when opened: every shard's header; index against headers in both directions (a tensor
// that the index names must be in the shard it names, a tensor in a shard must be in the index,
// no tensor in two shards, shards present, shard names plain file names); *.safetensors files in
// the folder that the index does not know are an error too, because loaders disagree about them.
// A missing tensor, a tensor in two shards and a stale index are errors, never warnings; but an
// index that names none of the files of a folder with one whole model.safetensors is left out, as
// loaders do that ask for that file first.
//
// Of a shard NAME that is somewhere else, "NAME.headers" may be here instead (io/file.h): all that
// headers tell is then known, and reading its data is kUnsupported.
//
// Mistral publishes its models twice in one folder: as Hugging Face's shards, and under its own
// names as consolidated*.safetensors. The former are read, and the latter are left out.

// A tensor and where its bytes lie.
struct StoredTensor {
  std::string_view name;  // the checkpoint holds it, and every copy of the checkpoint
  DType dtype = DType::kU8;
  uint32_t file = 0;  // index into Checkpoint::files()
  TensorShape shape;
  uint64_t offset = 0;  // bytes from the start of that file
  uint64_t bytes = 0;
};

struct CheckpointFile {
  std::string name;  // plain file name
  File file;
  size_t tensors = 0;       // how many it holds
  uint64_t data_start = 0;  // bytes from the start of the file
};

class Checkpoint;
struct QuantizedModel;  // formats/format.h

// What stands behind a checkpoint that is no folder of safetensors files, but another file seen as
// one: it reads the modules in it. Immutable; a checkpoint and its copies share it.
class CheckpointOrigin {
 public:
  CheckpointOrigin() = default;
  CheckpointOrigin(const CheckpointOrigin&) = delete;
  CheckpointOrigin& operator=(const CheckpointOrigin&) = delete;
  virtual ~CheckpointOrigin() = default;

  // Modules in the order of their names; those that cannot be read are in the errors of the model.
  virtual Status Read(const Checkpoint& checkpoint, QuantizedModel& model) const = 0;
};

class Checkpoint {
 public:
  // A folder, or a single .safetensors file (then config() is empty and the folder's other files
  // are not looked at).
  static Result<Checkpoint> Open(const std::filesystem::path& path);
  // The configs and side files of a folder that need not have weights.
  static Result<Checkpoint> OpenConfigs(const std::filesystem::path& folder);
  // Other files seen as a checkpoint: the tensors, whose names are copied, name them by their
  // numbers. `like` lends its config, of which `quantization` replaces what it declares, and its
  // side files.
  static Result<Checkpoint> Assemble(std::filesystem::path path, std::vector<CheckpointFile> files,
                                     std::vector<StoredTensor> tensors, const Checkpoint* like,
                                     const std::string& quantization,
                                     std::shared_ptr<const CheckpointOrigin> origin);

  // Opens a file anew, once it has come in place of its headers, or its headers in its place.
  // kMalformed unless size and header are what they were. Nobody may read from it meanwhile.
  Status Reopen(size_t file);

  const std::filesystem::path& path() const { return path_; }
  // The folder of the side files.
  const std::filesystem::path& side_folder() const { return side_folder_; }
  // Null for a checkpoint that was opened.
  const CheckpointOrigin* origin() const { return origin_.get(); }
  // The parsed config.json, or an empty object if there is none.
  const Json& config() const;
  // Its text, "{}" if there is none.
  const std::string& config_text() const;
  // The other JSON files of a quantizer, parsed, by file name: copies of the quantization config
  // (quantize_config.json, quant_config.json, quantization_config.json, hf_quant_config.json) and
  // params.json.
  using SideConfigs = std::map<std::string, Json, std::less<>>;
  const SideConfigs& side_configs() const;
  const std::vector<CheckpointFile>& files() const { return files_; }
  // Ascending by name.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* Find(std::string_view name) const;
  // The same, sooner if it comes soon after another tensor, as in lists that are in order. That may
  // be null.
  const StoredTensor* FindAfter(const StoredTensor* other, std::string_view name) const;
  // Does any name end in ".bias"? In most quantized models none does, and every module is asked for
  // its bias.
  bool has_biases() const { return has_biases_; }
  // Is the data of the tensor, or that of all tensors, here, and not only the headers of its file?
  bool IsHere(const StoredTensor& tensor) const;
  bool IsHere() const;
  // "FILE: tensor NAME", for errors.
  std::string Where(const StoredTensor& tensor) const;
  // Plain names of the regular files that are neither weights, nor index, nor config.json.
  const std::vector<std::string>& side_files() const { return side_files_; }
  // What else is in the folder but is not a side file, ascending: second copies of the weights,
  // weights in other formats and their indexes, and subfolders, whose names end in '/'. Hidden ones
  // are left out.
  const std::vector<std::string>& left_out() const { return left_out_; }
  // The index that was left out because it names other files; empty if there is none.
  const std::string& stale_index() const { return stale_index_; }
  // Size of all tensors.
  uint64_t total_bytes() const;

  // Fills `out` from byte `offset` of the tensor; a range outside it is an error.
  Status Read(const StoredTensor& tensor, uint64_t offset, std::span<std::byte> out) const;
  // The same for runs of bytes that lie `stride` apart; offsets count from the tensor's start. For
  // many short ones far faster than one Read each.
  Status ReadRuns(const StoredTensor& tensor, const ByteRuns& runs, std::span<std::byte> out) const;
  // Calls `work` with bytes [offset, offset + bytes) of the tensor, mapped into memory; see
  // File::VisitAt. They may begin at any address.
  Status Visit(const StoredTensor& tensor, uint64_t offset, uint64_t bytes, ByteVisitor work) const;
  // The same with those from the first of some runs to the last, which are columns of a matrix;
  // see File::VisitRunsAt.
  Status VisitRuns(const StoredTensor& tensor, const ByteRuns& runs, ByteVisitor work) const;
  // See File::MapTogether.
  void MapTogether(const StoredTensor& tensor) const {
    files_[tensor.file].file.MapTogether(tensor.offset, tensor.bytes);
  }

 private:
  struct Configs;

  Checkpoint();
  // The runs of a tensor in its file; kUsage if they are not all in it.
  Result<ByteRuns> InFile(const StoredTensor& tensor, const ByteRuns& runs) const;
  Status OpenFolder();
  Status OpenFile();
  // config.json and the quantizer's own, where they are.
  Status ReadConfigs(bool has_config);
  // Opens the files of the folder and puts their tensors in order.
  Status AddFiles(const std::vector<std::string>& names);
  // A name in two files is an error. The tensors can be found from then on.
  Status OrderTensors();
  void FillBuckets();
  size_t BucketOf(const Hash128& hash) const;
  // Holds names for as long as this checkpoint, or a copy of it, lives.
  using Names = std::shared_ptr<const std::string>;

  std::filesystem::path path_;
  std::filesystem::path side_folder_;
  std::shared_ptr<const CheckpointOrigin> origin_;
  std::shared_ptr<const Configs> configs_;  // never null
  std::vector<CheckpointFile> files_;
  std::vector<Names> names_;  // of the tensors, those of a file one after another
  std::vector<StoredTensor> tensors_;
  // Tensors by the hash of their names: those of bucket i begin at bucket_starts_[i]. They are in
  // order, so that even names with one hash are found soon.
  struct Bucketed {
    uint32_t tag = 0;  // more of the hash
    uint32_t tensor = 0;

    // NOLINTNEXTLINE(modernize-use-nullptr): there is none to use
    friend auto operator<=>(const Bucketed&, const Bucketed&) = default;
  };
  std::vector<Bucketed> buckets_;
  std::vector<uint32_t> bucket_starts_;
  bool has_biases_ = false;
  std::vector<std::string> side_files_;
  std::vector<std::string> left_out_;
  std::string stale_index_;
};

// The index in tensors() of a tensor of the checkpoint.
inline size_t NumberOf(const Checkpoint& checkpoint, const StoredTensor& tensor) {
  return static_cast<size_t>(&tensor - checkpoint.tensors().data());
}

}  // namespace prepack
