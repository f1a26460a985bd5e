#pragma once

// What a GGUF file was made of: a JSON file beside it, whose hash is in the file's metadata.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "prepack/base/dtype.h"
#include "prepack/base/hash.h"
#include "prepack/base/status.h"
#include "prepack/container/json.h"
#include "prepack/container/safetensors.h"
#include "prepack/convert/gguf/pack_blocks.h"
#include "prepack/convert/gguf/rows.h"
#include "prepack/convert/gguf/sources.h"
#include "prepack/gguf/ggml_types.h"
#include "prepack/gguf/model.h"
#include "prepack/packed/run_identity.h"

namespace prepack::gguf {

struct ManifestTensor {
  GgmlType type = GgmlType::kF32;
  Hash128 hash;                // xxh3-128 of its bytes
  std::vector<RowPiece> rows;  // none: the converter has computed it
  Rounded rounded;
  uint64_t group = 0;  // input channels that share a scale, if they are more than a block
  Origin origin;       // of what was computed
};

// A tensor of the checkpoint that is not quantized, or a stack of experts, whose dtype is unknown.
struct SourceShape {
  std::optional<DType> dtype;
  TensorShape shape;
};

struct Manifest {
  std::string source;  // path from the file, or empty
  std::string source_format;
  std::string source_identity;  // see SourceIdentity
  std::string converter_class;
  std::vector<std::string> sources;  // names of the tensors that rows are of
  std::map<std::string, ManifestTensor> tensors;
  std::map<std::string, SourceShape> shapes;
  std::vector<std::string> left_out;  // what no tensor of the file is made of
  // Of a conversion that could be continued: what made it, and the identity of the tensors that
  // rows are of.
  std::optional<RunIdentity> run;
  std::string source_fingerprint;
};

// The tensors that a file is to be made of, with their shapes.
Manifest NamesOf(const Sources& sources);
// Adds to what is left out the sources that no tensor of the file is made of.
void NoteLeftOut(Manifest& manifest);

// The hash of the manifest that a file was made with; nothing for one from elsewhere.
Result<std::optional<std::string>> ManifestHashOf(const Model& model);

// "model.gguf.prepack.json"; of any of several files, that of all: without -00001-of-00003.
std::filesystem::path ManifestOf(const std::filesystem::path& file);

// As manifests and reports have it.
Json RoundedJson(const Rounded& rounded);

std::string ManifestText(const Manifest& manifest);
// kMalformed when it is none, or when its hash is not `hash`.
Result<Manifest> ReadManifest(const std::filesystem::path& path, const std::string& hash);

}  // namespace prepack::gguf
