#include "prepack/convert/gguf/converter_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "prepack/convert/gguf/plan.h"
#include "prepack/formats/format.h"
#include "prepack/io/scratch_folder.h"
#include "prepack/packed/packed_model.h"

namespace prepack::gguf {
namespace {

// A model that is not quantized has no modules.
Result<QuantizedModel> ReadLike(const Checkpoint& like) {
  Result<QuantizedModel> model = ReadSourceModel(like);
  if (!model.ok() && model.status().id() == "config-missing") return QuantizedModel{};
  return model;
}

Status CheckDims(const Model& model, const Tensor& tensor, const PlannedTensor& planned) {
  const bool same = tensor.dims == planned.dims;
  if (same) return {};
  return Malformed(model.Where(tensor), "the model of --like has it in another shape")
      .Found(fmt::format("[{}]", fmt::join(tensor.dims, ", ")))
      .Expected(fmt::format("[{}]", fmt::join(planned.dims, ", ")))
      .Hint("--like names the Hugging Face model that the file was made of");
}

}  // namespace

Result<Manifest> AskForNames(const Model& model, const GgufSource& options) {
  PREPACK_TRY_ASSIGN(const Checkpoint like, Checkpoint::Open(options.like));
  PREPACK_TRY_ASSIGN(const QuantizedModel modules, ReadLike(like));
  PREPACK_TRY_ASSIGN(const ScratchFolder scratch, ScratchFolder::Create());
  const PlanOptions asked{.source = options.like,
                          .llama_cpp = options.llama_cpp,
                          .python = options.python,
                          .if_not_held = IfNotHeld::kFloats,
                          .tokenizer = false,
                          .probe = true};
  PREPACK_TRY_ASSIGN(const Plan plan, MakePlan(like, modules, asked, scratch.path()));
  Manifest manifest = NamesOf(plan.sources);
  for (const PlannedTensor& planned : plan.tensors) {
    const Tensor* tensor = model.FindTensor(planned.name);
    if (tensor == nullptr) continue;
    PREPACK_TRY(CheckDims(model, *tensor, planned));
    manifest.tensors[planned.name] = {.type = tensor->type,
                                      .hash = {},
                                      .rows = planned.rows,
                                      .rounded = {},
                                      .group = 0,
                                      .origin = planned.origin};
  }
  NoteLeftOut(manifest);
  return manifest;
}

}  // namespace prepack::gguf
