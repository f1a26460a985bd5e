// A GGUF file: what is accepted has tensors that lie in the file one behind the other, with the
// size of their type and shape, and values that can all be read; check comes back with a verdict.
//
// Input: the bytes of the file.

#include <set>

#include "fuzz/fuzz_target.h"
#include "fuzz/scratch_folder.h"
#include "prepack/check/check.h"
#include "prepack/gguf/blocks.h"
#include "prepack/gguf/model.h"

namespace prepack::fuzz {
namespace {

constexpr const char* kFile = "m.gguf";
constexpr uint64_t kMost = 100;  // elements and bytes that are read of a value

void DemandValues(const gguf::Model& model) {
  std::set<std::string_view> keys;
  for (const gguf::Value& value : model.values()) {
    Demand(keys.insert(value.key).second, "keys differ", value.key);
    Demand(value.offset + value.bytes <= model.files()[0].file.size(), "a value is in the file");
    if (value.type == gguf::ValueType::kString) {
      Demand(model.ReadText(value, kMost).ok(), "a text can be read", value.key);
    } else if (value.type != gguf::ValueType::kArray) {
      Demand(!gguf::NumberText(value.type, value.bits).empty(), "a number can be shown");
    } else if (value.element == gguf::ValueType::kString) {
      Demand(model.ReadTexts(value, kMost, kMost).ok(), "texts can be read", value.key);
    } else {
      Demand(model.ReadNumbers(value, kMost).ok(), "numbers can be read", value.key);
    }
  }
}

void DemandTensors(const gguf::Model& model) {
  const gguf::ModelFile& file = model.files()[0];
  uint64_t bytes = 0;
  for (const gguf::Tensor& tensor : model.tensors()) {
    Demand(gguf::BytesOf(tensor.type, tensor.dims) == tensor.bytes, "sizes fit", tensor.name);
    Demand(tensor.offset >= file.data_start, "data begins behind the header", tensor.name);
    Demand(tensor.offset + tensor.bytes <= file.file.size(), "and is in the file", tensor.name);
    Demand(model.FindTensor(tensor.name) == &tensor, "a tensor is found", tensor.name);
    bytes += tensor.bytes;
    if (!gguf::IsDecoded(tensor.type)) continue;
    const gguf::GgmlTypeInfo& info = gguf::InfoOf(tensor.type);
    std::vector<float> weights(tensor.bytes / info.bytes * info.block);
    const Status status = model.Visit(tensor, 0, tensor.bytes, [&](const std::byte* stored) {
      gguf::Dequantize(tensor.type, {stored, tensor.bytes}, weights);
    });
    Demand(status.ok(), "weights can be read", status.ToString());
  }
  Demand(bytes <= file.file.size(), "tensors do not overlap");
}

void Run(std::string_view bytes) {
  static const ScratchFolder folder;
  folder.Write(kFile, bytes);
  const Result<gguf::Model> model = gguf::Model::Open(folder / kFile);
  if (model.ok()) {
    DemandValues(*model);
    DemandTensors(*model);
  } else {
    DemandGoodError(model.status());
  }
  Progress progress;
  const Result<CheckReport> report =
      Check({.source = folder / kFile, .baseline = {}, .jobs = 1}, progress);
  Demand(report.ok(), "check comes back", report.status().ToString());
  Demand(model.ok() || report->verdict >= CheckVerdict::kUnsupported, "and agrees");
}

}  // namespace
}  // namespace prepack::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  prepack::fuzz::Run({reinterpret_cast<const char*>(data), size});
  return 0;
}
