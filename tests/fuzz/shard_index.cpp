// The index of a checkpoint in shards: what is accepted names every tensor of the two shards that
// lie there, each in its shard, and nothing else.
//
// Input: the text of the index.

#include <nlohmann/json.hpp>

#include "fuzz/fuzz_target.h"
#include "fuzz/scratch_folder.h"
#include "prepack/container/checkpoint.h"

namespace prepack::fuzz {
namespace {

constexpr const char* kFirst = "model-00001-of-00002.safetensors";
constexpr const char* kSecond = "model-00002-of-00002.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// The bytes of a safetensors file with these tensors of one byte each.
std::string Shard(const std::vector<std::string>& names) {
  nlohmann::json header;
  for (const std::string& name : names) {
    const size_t begin = header.size();
    header[name] = {{"dtype", "U8"}, {"shape", {1}}, {"data_offsets", {begin, begin + 1}}};
  }
  const std::string json = header.dump();
  std::string bytes(kHeaderLengthBytes, '\0');
  bytes[0] = static_cast<char>(json.size() & 0xFFU);
  bytes[1] = static_cast<char>(json.size() >> 8);
  return bytes + json + std::string(names.size(), 'x');
}

class Shards {
 public:
  Shards() {
    folder_.Write(kFirst, Shard({"a", "b"}));
    folder_.Write(kSecond, Shard({"c"}));
  }
  Result<Checkpoint> Open(std::string_view index) const {
    folder_.Write(kIndex, index);
    return Checkpoint::Open(folder_.path());
  }

 private:
  ScratchFolder folder_;
};

void Run(std::string_view index) {
  static const Shards shards;
  const Result<Checkpoint> checkpoint = shards.Open(index);
  if (!checkpoint.ok()) return DemandGoodError(checkpoint.status());
  const nlohmann::json dom = nlohmann::json::parse(index, nullptr, false);
  Demand(dom.is_object(), "an accepted index is an object");
  const nlohmann::json expected = {{"a", kFirst}, {"b", kFirst}, {"c", kSecond}};
  Demand(dom.at("weight_map") == expected, "an accepted index is that of the shards");
  Demand(checkpoint->tensors().size() == 3, "all tensors are there");
}

}  // namespace
}  // namespace prepack::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  prepack::fuzz::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
