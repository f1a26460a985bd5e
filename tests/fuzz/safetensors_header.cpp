// The JSON of a safetensors header: what is accepted means what a plain JSON library reads in it,
// fills the data without holes, and can be written and read back.
//
// Input: size of the data (2 bytes), then the JSON.

#include <nlohmann/json.hpp>
#include <set>

#include "fuzz/fuzz_target.h"
#include "prepack/container/safetensors.h"
#include "prepack/container/safetensors_writer.h"

namespace prepack::fuzz {
namespace {

// The numbers of a JSON array, for comparing.
std::vector<uint64_t> Numbers(const nlohmann::json& array) {
  return array.get<std::vector<uint64_t>>();
}

void DemandSameMeaning(const SafetensorsHeader& header, std::string_view json) {
  const nlohmann::json dom = nlohmann::json::parse(json, nullptr, false);
  Demand(dom.is_object(), "an accepted header is an object");
  Demand(dom.size() == header.tensors.size() + dom.count("__metadata__"), "no tensor is left out");
  for (const TensorInfo& tensor : header.tensors) {
    const nlohmann::json& entry = dom.at(tensor.name);
    Demand(entry.at("dtype") == DTypeName(tensor.dtype), "the dtype is that of the text",
           tensor.name);
    Demand(std::ranges::equal(Numbers(entry.at("shape")), tensor.shape), "so is the shape",
           tensor.name);
    Demand(Numbers(entry.at("data_offsets")) == std::vector{tensor.begin, tensor.end},
           "so are the offsets", tensor.name);
  }
}

void DemandDense(const SafetensorsHeader& header, uint64_t data_bytes) {
  std::set<std::string_view> names;
  uint64_t next = 0;
  for (const TensorInfo& tensor : header.tensors) {
    Demand(names.insert(tensor.name).second, "names differ", tensor.name);
    Demand(tensor.begin == next, "tensors touch", tensor.name);
    Demand(TensorBytes(tensor.dtype, tensor.shape) == tensor.bytes(), "sizes fit", tensor.name);
    next = tensor.end;
  }
  Demand(next == data_bytes, "the tensors end with the file");
}

// A file of the same tensors has a header that is read as the same.
void DemandWritable(const SafetensorsHeader& header) {
  const Result<SafetensorsPlan> plan = PlanSafetensors(header.tensors, header.metadata);
  Demand(plan.ok(), "what was read can be written", plan.status().ToString());
  std::string text;
  const Status written = plan->VisitHeader([&](uint64_t offset, std::string_view piece) {
    Demand(offset == text.size(), "the header is written from front to back");
    text += piece;
    return Status();
  });
  Demand(written.ok(), "a header in memory can be written");
  const Result<SafetensorsHeader> again = ParseSafetensorsHeader(
      std::string_view(text).substr(kHeaderLengthBytes), plan->file_bytes - text.size(), "again");
  Demand(again.ok(), "what was written can be read", again.status().ToString());
  Demand(again->metadata == header.metadata, "metadata stays");
  Demand(again->tensors.size() == header.tensors.size(), "tensors stay");
}

void Run(Input input) {
  const uint64_t data_bytes = input.U16();
  const std::string_view json = input.Text();
  const Result<SafetensorsHeader> header = ParseSafetensorsHeader(json, data_bytes, "input");
  if (!header.ok()) return DemandGoodError(header.status());
  DemandDense(*header, data_bytes);
  DemandSameMeaning(*header, json);
  DemandWritable(*header);
}

}  // namespace
}  // namespace prepack::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  prepack::fuzz::Run({data, size});
  return 0;
}
