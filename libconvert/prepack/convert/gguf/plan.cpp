#include "prepack/convert/gguf/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/container/json_fields.h"
#include "prepack/convert/gguf/converter.h"
#include "prepack/io/file.h"

namespace prepack::gguf {
namespace {

constexpr uint64_t kMostPlanBytes = uint64_t{4} << 30;
constexpr std::string_view kWeightEnding = ".weight";

// What a global scale multiplies with.
float Factor(const GlobalScale& scale) {
  return scale.divides ? 1 / scale.value : scale.value;
}

// Reads what the converter has said, and decides the types.
class PlanReader {
 public:
  PlanReader(const PlanOptions& options, Plan& plan) : options_(options), plan_(plan) {}

  Status Read(const std::filesystem::path& path) {
    PREPACK_TRY_ASSIGN(const std::string text, ReadTextFile(path, kMostPlanBytes));
    Status status;
    const auto add = [&](const std::string& name, const Json& entry) {
      if (status.ok()) status = Add(name, entry);
    };
    const JsonEntries entries{.of = "tensors", .visit = add};
    const Result<Json> root =
        ParseJsonStrict(text, path.string(), {.max_values = SIZE_MAX}, &entries);
    if (!root.ok()) return root.status();
    return status;
  }

 private:
  Status Add(const std::string& name, const Json& entry) {
    PlannedTensor tensor;
    tensor.name = name;
    Status status;
    JsonFields fields(entry, fmt::format("plan of the converter: tensor {}", name), status);
    for (const uint64_t dim : fields.Uints("dims")) {
      if (tensor.dims.size() < kMaxDims) tensor.dims.push_back(dim);
    }
    const std::string type = fields.TextOrNull("type");
    if (fields.Has("rows")) {
      for (const Json& piece : *fields.Array("rows")) PREPACK_TRY(AddPiece(piece, tensor));
      if (status.ok()) status = ChooseType(type, tensor);
    } else {
      const GgmlTypeInfo* info = FindGgmlType(type);
      if (info == nullptr) return NotUnderstood(name, "its type is unknown");
      tensor.type = info->type;
      tensor.value_offset = fields.Uint("offset");
    }
    if (!status.ok()) return status;
    if (!BytesOf(tensor.type, tensor.dims)) return NotUnderstood(name, "its shape has no size");
    return Finish(std::move(tensor));
  }

  static Status NotUnderstood(std::string_view name, std::string_view what) {
    return Unsupported(fmt::format("plan of the converter: tensor {}", name), what)
        .Hint("This llama.cpp is another version than those that prepack knows");
  }

  Status AddPiece(const Json& json, PlannedTensor& tensor) const {
    std::optional<RowPiece> piece = PieceFromJson(json);
    const auto& sources = plan_.sources.sources;
    if (!piece || !json[0].is_number_unsigned() || json[0].get<uint64_t>() >= sources.size()) {
      return NotUnderstood(tensor.name, "its rows are none");
    }
    piece->source = json[0].get<size_t>();
    if (!piece->IsInside(sources[piece->source].rows())) {
      return NotUnderstood(tensor.name, "its rows lie outside the tensor that they are of");
    }
    tensor.rows.push_back(*piece);
    return {};
  }

  std::set<size_t> SourcesOf(const PlannedTensor& tensor) const {
    std::set<size_t> numbers;
    for (const RowPiece& piece : tensor.rows) numbers.insert(piece.source);
    return numbers;
  }

  // `wanted` is the type that the converter insists on; empty: it would take any.
  Status ChooseType(const std::string& wanted, PlannedTensor& tensor) {
    const std::set<size_t> numbers = SourcesOf(tensor);
    if (tensor.row_count() * tensor.dims.front() != *CheckedProduct(Span(tensor.dims))) {
      return NotUnderstood(tensor.name, "it has more rows than come from the checkpoint");
    }
    const auto& sources = plan_.sources.sources;
    const bool plain = std::ranges::all_of(
        numbers, [&](size_t number) { return sources[number].plain != nullptr; });
    if (plain) {
      tensor.type = PlainType(wanted, *sources[*numbers.begin()].plain);
      return {};
    }
    for (const GgmlType type : CommonTypes(numbers)) {
      if (type == GgmlType::kNVFP4 && !HasOneScaleEach(tensor)) continue;
      tensor.type = type;
      return {};
    }
    tensor.type = options_.exact ? GgmlType::kF32 : GgmlType::kBF16;
    return {};
  }

  static std::span<const uint64_t> Span(const Dims& dims) { return {dims.begin(), dims.size()}; }

  static GgmlType PlainType(const std::string& wanted, const StoredTensor& tensor) {
    if (const GgmlTypeInfo* info = FindGgmlType(wanted); info != nullptr) return info->type;
    return gguf::FloatTypeOf(tensor.dtype);
  }

  // The types that hold all of them.
  std::vector<GgmlType> CommonTypes(const std::set<size_t>& numbers) const {
    const auto& sources = plan_.sources.sources;
    std::vector<GgmlType> types = sources[*numbers.begin()].types;
    for (const size_t number : numbers) {
      const std::vector<GgmlType>& others = sources[number].types;
      std::erase_if(types, [&](GgmlType type) { return std::ranges::count(others, type) == 0; });
    }
    return types;
  }

  const QuantizedLinear& ModuleOf(const RowPiece& piece, uint64_t index) const {
    const Source& source = plan_.sources.sources[piece.source];
    return *source.modules[piece.Row(index) / source.rows_of_module()];
  }

  // The module of every expert of a tensor of three dimensions, or the one of a matrix; empty if
  // rows of several share what has one global scale.
  std::vector<const QuantizedLinear*> ModuleOfEach(const PlannedTensor& tensor) const {
    const uint64_t count = tensor.dims.size() == 3 ? tensor.dims[2] : 1;
    const uint64_t rows = tensor.row_count() / count;
    std::vector<const QuantizedLinear*> modules;
    uint64_t before = 0;
    for (const RowPiece& piece : tensor.rows) {
      for (uint64_t row = 0; row < piece.rows(); ++row, ++before) {
        const QuantizedLinear* module = &ModuleOf(piece, row);
        if (before % rows == 0) modules.push_back(module);
        if (modules.back() != module) return {};
      }
    }
    return modules;
  }

  bool HasOneScaleEach(const PlannedTensor& tensor) const { return !ModuleOfEach(tensor).empty(); }

  // NVFP4 has a factor for each matrix, and one for its activations, beside the tensor.
  Status Finish(PlannedTensor tensor) {
    const bool global = tensor.type == GgmlType::kNVFP4 && !tensor.rows.empty();
    plan_.tensors.push_back(std::move(tensor));
    if (!global) return {};
    const std::vector<const QuantizedLinear*> modules = ModuleOfEach(plan_.tensors.back());
    AddScales(".scale", modules, &QuantizedLinear::global_scale);
    AddScales(".input_scale", modules, &QuantizedLinear::input_global_scale);
    return {};
  }

  using ScaleOf = const std::optional<GlobalScale>& (QuantizedLinear::*)() const;
  void AddScales(std::string_view ending, const std::vector<const QuantizedLinear*>& modules,
                 ScaleOf scale_of) {
    std::vector<float> scales;
    for (const QuantizedLinear* module : modules) {
      const std::optional<GlobalScale>& scale = (module->*scale_of)();
      scales.push_back(scale ? Factor(*scale) : 1);
    }
    if (std::ranges::all_of(scales, [](float scale) { return scale == 1; })) return;
    std::string name = plan_.tensors.back().name;
    if (name.ends_with(".scale")) name = name.substr(0, name.size() - 6) + ".weight";
    name = name.substr(0, name.size() - kWeightEnding.size()) + std::string(ending);
    Dims dims;
    dims.push_back(scales.size());
    PlannedTensor tensor;
    tensor.name = name;
    tensor.dims = dims;
    tensor.scales = std::move(scales);
    plan_.tensors.push_back(std::move(tensor));
  }

  const PlanOptions& options_;
  Plan& plan_;
};

// In the order in which the checkpoint has what they are made of, so that reading is sequential.
void SortAsSource(const Checkpoint& checkpoint, Plan& plan) {
  const auto place = [&](const PlannedTensor& tensor) -> std::pair<size_t, uint64_t> {
    if (tensor.rows.empty()) return {0, 0};
    const Source& source = plan.sources.sources[tensor.rows.front().source];
    const StoredTensor* stored = source.plain;
    if (stored == nullptr)
      stored = checkpoint.Find(source.modules.front()->source_tensors().front());
    return stored == nullptr ? std::pair<size_t, uint64_t>{0, 0}
                             : std::pair{stored->file, stored->offset};
  };
  std::ranges::stable_sort(plan.tensors, {}, place);
}

}  // namespace

uint64_t PlannedTensor::row_count() const {
  uint64_t count = 0;
  for (const RowPiece& piece : rows) count += piece.rows();
  return count;
}

uint64_t Plan::tensor_bytes() const {
  uint64_t bytes = 0;
  for (const PlannedTensor& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

Result<Plan> MakePlan(const Checkpoint& checkpoint, const QuantizedModel& model,
                      const PlanOptions& options, const std::filesystem::path& scratch) {
  Plan plan;
  PREPACK_TRY_ASSIGN(plan.sources, FindSources(checkpoint, model, options));
  PREPACK_TRY_ASSIGN(const ConverterAnswer answer,
                     AskConverter(checkpoint, plan.sources, options, scratch));
  plan.metadata = answer.files.metadata;
  plan.values = answer.files.values;
  plan.converter_class = answer.converter_class;
  plan.has_tokenizer = answer.has_tokenizer;
  PREPACK_TRY(PlanReader(options, plan).Read(answer.files.plan));
  SortAsSource(checkpoint, plan);
  return plan;
}

}  // namespace prepack::gguf
