#pragma once

// A GGUF file as a source like any other: a checkpoint that has the names, shapes and rows of the
// Hugging Face model that the file was made of. Blocks stay where they are, and so do tensors of
// floats whose rows lie as the model has them. What the converter has put into another order, or
// computed, is restored into a file without a name.
//
// Who was what is said by the manifest that `convert` left beside the file, or by llama.cpp's
// converter, asked what it would make of `like`.

#include <filesystem>
#include <vector>

#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/convert/gguf/manifest.h"
#include "prepack/convert/gguf/restored.h"
#include "prepack/convert/source.h"
#include "prepack/gguf/model.h"

namespace prepack::gguf {

// What stands behind such a checkpoint.
class FileOrigin final : public CheckpointOrigin {
 public:
  FileOrigin(Model model, Manifest manifest);

  Status Read(const Checkpoint& checkpoint, QuantizedModel& model) const override;

  const Model& model() const { return model_; }
  // Of this object, in the process.
  uint64_t number() const { return number_; }
  const Manifest& manifest() const { return manifest_; }

 private:
  friend class SourceOpener;

  // Something of the model that blocks hold, and how its modules are read.
  struct Blocks {
    const Restored* restored = nullptr;
    bool floats = false;
  };

  uint64_t number_;
  Model model_;
  Manifest manifest_;
  std::vector<Restored> restored_;
  std::vector<Blocks> blocks_;
  std::vector<Status> errors_;
};

Result<Checkpoint> OpenGgufSource(const std::filesystem::path& path, const GgufSource& options);

}  // namespace prepack::gguf
