#pragma once

// Writes checkpoints with random codes for benchmarks: any modules, as any quantizer would store
// them, of any size in bounded memory.
//
// Tensors lie in a file as safetensors' own library lays them out: widest elements first, then by
// name, with nothing between them. What is measured so is read from addresses as uneven as those of
// real files.

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "prepack/base/status.h"
#include "sample_formats.h"

namespace prepack::bench {

struct SampleModule {
  std::string name;
  uint64_t n = 0;
  uint64_t k = 0;
};

// A tensor that is not one module's own: of any content that needs no module.
struct PlainTensor {
  std::string name;
  std::vector<uint64_t> shape;
  Content content = Content::kWeights;
  DType dtype = DType::kBF16;
};

struct SampleCheckpoint {
  SampleFormat format;
  Json config = Json::object();  // config.json without its quantization_config
  std::vector<SampleModule> modules;
  std::vector<PlainTensor> plain;
  std::vector<std::string> ignored;  // linear layers among them: some configs list these
  uint64_t seed = 1;
  uint64_t shards = 1;  // with an index when there are more
  // Leaves codes and plain weights to holes in the files, which read as zeros: they take no disk,
  // and no time to write.
  bool sparse = false;
};

// Writes into an existing folder; files that are there already are an error. The same checkpoint
// has the same tensors whatever the number of shards.
Status WriteCheckpoint(const std::filesystem::path& folder, const SampleCheckpoint& checkpoint);

// One file with `modules` modules [n, k].
Status WriteSample(const std::filesystem::path& folder, const SampleFormat& format, uint64_t n,
                   uint64_t k, uint64_t modules, uint64_t seed = 1);

}  // namespace prepack::bench
