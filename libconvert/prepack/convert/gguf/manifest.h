#ifndef PREPACK_CONVERT_GGUF_MANIFEST_H_
#define PREPACK_CONVERT_GGUF_MANIFEST_H_

// What a GGUF file was made of: a JSON file beside it, whose hash is in the file's metadata.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "prepack/base/hash.h"
#include "prepack/base/status.h"
#include "prepack/container/json.h"
#include "prepack/convert/gguf/pack_blocks.h"
#include "prepack/convert/gguf/rows.h"
#include "prepack/gguf/ggml_types.h"

namespace prepack::gguf {

struct ManifestTensor {
  GgmlType type = GgmlType::kF32;
  Hash128 hash;                // xxh3-128 of its bytes
  std::vector<RowPiece> rows;  // none: the converter has computed it
  Rounded rounded;
};

struct Manifest {
  std::string source;  // path from the file, or empty
  std::string source_format;
  std::string source_identity;  // see SourceIdentity
  std::string converter_class;
  std::vector<std::string> sources;  // names of the tensors that rows are of
  std::map<std::string, ManifestTensor> tensors;
};

// "model.gguf.prepack.json"; of any of several files, that of all: without -00001-of-00003.
std::filesystem::path ManifestOf(const std::filesystem::path& file);

// As manifests and reports have it.
Json RoundedJson(const Rounded& rounded);

std::string ManifestText(const Manifest& manifest);
// kMalformed when it is none, or when its hash is not `hash`.
Result<Manifest> ReadManifest(const std::filesystem::path& path, const std::string& hash);

}  // namespace prepack::gguf

#endif  // PREPACK_CONVERT_GGUF_MANIFEST_H_
