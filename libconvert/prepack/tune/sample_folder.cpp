#include "prepack/tune/sample_folder.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "prepack/base/memory.h"
#include "prepack/base/progress.h"
#include "prepack/container/json.h"
#include "prepack/container/safetensors_writer.h"
#include "prepack/io/file.h"
#include "prepack/packed/small_parts.h"

namespace prepack {
namespace {

constexpr uint64_t kCopyBytes = uint64_t{8} << 20;

std::vector<const StoredTensor*> TensorsOf(const Checkpoint& checkpoint,
                                           std::span<const QuantizedLinear* const> modules) {
  std::set<const StoredTensor*> seen;
  std::vector<const StoredTensor*> tensors;
  const auto add = [&](const StoredTensor* tensor) {
    if (tensor != nullptr && seen.insert(tensor).second) tensors.push_back(tensor);
  };
  for (const QuantizedLinear* linear : modules) {
    for (const std::string_view name : linear->source_tensors()) add(checkpoint.Find(name));
    for (const BiasPlace& bias : FindBiases(checkpoint, *linear)) add(bias.tensor);
  }
  return tensors;
}

Status CopyTensor(const Checkpoint& checkpoint, const StoredTensor& tensor, size_t index,
                  SafetensorsWriter& writer, PageBuffer& buffer) {
  for (uint64_t offset = 0; offset < tensor.bytes; offset += kCopyBytes) {
    if (CancellationRequested()) return Interrupted(tensor.name);
    buffer.resize(std::min(kCopyBytes, tensor.bytes - offset));
    PREPACK_TRY(checkpoint.Read(tensor, offset, buffer));
    PREPACK_TRY(writer.Write(index, offset, buffer));
  }
  return {};
}

Status WriteTensors(const Checkpoint& checkpoint, const std::vector<const StoredTensor*>& tensors,
                    const std::filesystem::path& file) {
  std::vector<TensorInfo> infos;
  infos.reserve(tensors.size());
  for (const StoredTensor* tensor : tensors) {
    infos.push_back(
        {.name = std::string(tensor->name), .dtype = tensor->dtype, .shape = tensor->shape});
  }
  PREPACK_TRY_ASSIGN(SafetensorsPlan plan, PlanSafetensors(std::move(infos), {}));
  PREPACK_TRY_ASSIGN(SafetensorsWriter writer, SafetensorsWriter::Create(file, std::move(plan)));
  writer.FlushEarly(false);
  PageBuffer buffer;
  const std::vector<TensorInfo>& written = writer.header().tensors;
  for (size_t index = 0; index < written.size(); ++index) {
    const StoredTensor* tensor = checkpoint.Find(written[index].name);
    PREPACK_TRY(CopyTensor(checkpoint, *tensor, index, writer, buffer));
  }
  return writer.CheckArrived();
}

}  // namespace

Status WriteSample(const Checkpoint& checkpoint, std::span<const QuantizedLinear* const> modules,
                   const std::filesystem::path& to) {
  std::error_code error;
  std::filesystem::create_directory(to, error);
  if (error) return SystemError(to.string(), "cannot make the folder", error.value());
  // Without its class it need not have the parts that a whole model has.
  Json config = checkpoint.config();
  config.erase("architectures");
  PREPACK_TRY(WriteTextFile(to / "config.json",
                            config.dump(2, ' ', false, Json::error_handler_t::replace)));
  for (const auto& [name, side_config] : checkpoint.side_configs()) {
    PREPACK_TRY(CopyFile(checkpoint.side_folder() / name, to / name));
  }
  return WriteTensors(checkpoint, TensorsOf(checkpoint, modules), to / "model.safetensors");
}

}  // namespace prepack
