#include "prepack/convert/gguf/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "prepack/base/checked.h"
#include "prepack/container/json_fields.h"
#include "prepack/convert/gguf/converter.h"
#include "prepack/convert/gguf/types.h"
#include "prepack/io/file.h"

namespace prepack::gguf {
namespace {

constexpr uint64_t kMostPlanBytes = uint64_t{4} << 30;
constexpr std::string_view kWeightEnding = ".weight";

// What a global scale multiplies with.
float Factor(const GlobalScale& scale) {
  return scale.divides ? 1 / scale.value : scale.value;
}

// The modules that the matrices of a tensor are made of, where each is made of one.
class MatrixModules {
 public:
  MatrixModules(const std::vector<Source>& sources, uint64_t rows_of_matrix)
      : sources_(sources), rows_of_matrix_(rows_of_matrix) {}

  // The next rows. false: a matrix has rows of several modules.
  bool Add(const RowPiece& piece) {
    const uint64_t in_matrix = before_ % rows_of_matrix_;
    if (in_matrix + piece.rows() > rows_of_matrix_) return AddParts(piece);
    const Source& source = sources_[piece.source];
    const auto [low, high] = piece.Bounds();
    const uint64_t number = low / source.rows_of_module();
    if (high / source.rows_of_module() != number) return false;
    if (in_matrix == 0) modules_.push_back(source.modules[number]);
    before_ += piece.rows();
    return modules_.back() == source.modules[number];
  }

  std::vector<const QuantizedLinear*> Take() { return std::move(modules_); }

 private:
  bool AddParts(const RowPiece& piece) {
    RowPiece part{.source = piece.source, .first = piece.first, .loops = {}};
    const RowLoop outer = piece.loops[0];
    for (size_t i = 1; i < piece.loops.size(); ++i) part.loops.push_back(piece.loops[i]);
    for (uint64_t i = 0; i < outer.count; ++i) {
      if (!Add(part)) return false;
      part.first += static_cast<uint64_t>(outer.step);
    }
    return true;
  }

  const std::vector<Source>& sources_;
  uint64_t rows_of_matrix_;
  uint64_t before_ = 0;
  std::vector<const QuantizedLinear*> modules_;
};

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
      for (const Json& piece : *fields.Array("rows")) {
        PREPACK_TRY(AddPiece(piece, tensor, false));
      }
      if (status.ok()) status = ChooseType(type, tensor);
      if (status.ok()) NoteRounding(tensor);
    } else {
      const GgmlTypeInfo* info = FindGgmlType(type);
      if (info == nullptr) return NotUnderstood(name, "its type is unknown");
      tensor.type = info->type;
      tensor.value_offset = fields.Uint("offset");
      if (fields.Has("of")) PREPACK_TRY(AddOrigin(fields, tensor));
    }
    if (!status.ok()) return status;
    if (!BytesOf(tensor.type, tensor.dims)) return NotUnderstood(name, "its shape has no size");
    return Finish(std::move(tensor));
  }

  static Status NotUnderstood(std::string_view name, std::string_view what) {
    return Unsupported(fmt::format("plan of the converter: tensor {}", name), what)
        .Hint("This llama.cpp is another version than those that prepack knows");
  }

  Status AddOrigin(JsonFields& fields, PlannedTensor& tensor) const {
    const uint64_t number = fields.Uint("of");
    const auto& sources = plan_.sources.sources;
    if (number >= sources.size()) return NotUnderstood(tensor.name, "it is made of no tensor");
    tensor.origin.source = sources[number].name;
    if (!fields.Has("elements")) return {};
    for (const Json& piece : *fields.Array("elements")) {
      PREPACK_TRY(AddPiece(piece, tensor, true));
    }
    if (fields.Has("plus")) tensor.origin.plus = fields.Any("plus")->get<float>();
    return {};
  }

  // Of rows, or of single elements.
  Status AddPiece(const Json& json, PlannedTensor& tensor, bool elements) const {
    std::optional<RowPiece> piece = PieceFromJson(json);
    const auto& sources = plan_.sources.sources;
    if (!piece || !json[0].is_number_unsigned() || json[0].get<uint64_t>() >= sources.size()) {
      return NotUnderstood(tensor.name, "its rows are none");
    }
    piece->source = json[0].get<size_t>();
    const Source& source = sources[piece->source];
    if (!piece->IsInside(source.rows() * (elements ? source.columns() : 1))) {
      return NotUnderstood(tensor.name, "its rows lie outside the tensor that they are of");
    }
    (elements ? tensor.origin.elements : tensor.rows).push_back(*piece);
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
    const auto is_plain = [&](size_t number) { return sources[number].plain != nullptr; };
    if (std::ranges::all_of(numbers, is_plain)) {
      tensor.type = PlainType(wanted, numbers);
      return {};
    }
    for (const GgmlType type : CommonTypes(numbers)) {
      if (type == GgmlType::kNVFP4) modules_ = ModuleOfEach(tensor);
      if (type == GgmlType::kNVFP4 && modules_.empty()) continue;
      tensor.type = type;
      return {};
    }
    PREPACK_TRY(NoteMixed(tensor.name, numbers));
    const bool quantizes = options_.if_not_held == IfNotHeld::kQ8_0 &&
                           std::ranges::none_of(numbers, is_plain) &&
                           tensor.dims.front() % InfoOf(GgmlType::kQ8_0).block == 0;
    if (quantizes) {
      tensor.type = GgmlType::kQ8_0;
    } else {
      tensor.type = options_.exact ? GgmlType::kF32 : GgmlType::kBF16;
    }
    return {};
  }

  void NoteRounding(PlannedTensor& tensor) {
    std::set<std::string_view> rounds;
    auto& not_held = plan_.sources.not_held;
    for (const size_t number : SourcesOf(tensor)) {
      const Source& source = plan_.sources.sources[number];
      if (source.plain != nullptr && tensor.type != GgmlType::kF32 &&
          tensor.type != FloatTypeOf(source.plain->dtype)) {
        rounds.insert("weights");
      }
      for (const QuantizedLinear* linear : source.modules) {
        const std::vector<std::string_view> of_module = WhatRounds(tensor.type, *linear);
        rounds.insert(of_module.begin(), of_module.end());
        const auto it = not_held.find(linear->module());
        if (it != not_held.end()) it->second.type = tensor.type;
      }
    }
    tensor.rounds.assign(rounds.begin(), rounds.end());
  }

  // Modules that some type holds, but none all of those that make up one tensor.
  Status NoteMixed(const std::string& name, const std::set<size_t>& numbers) {
    std::string why =
        fmt::format("no type holds all modules of the tensor {}, which has one type", name);
    for (const size_t number : numbers) {
      const Source& source = plan_.sources.sources[number];
      if (source.types.empty()) continue;
      if (options_.if_not_held == IfNotHeld::kRefuse) {
        return Unsupported(fmt::format("tensor {} of the checkpoint", source.name), why)
            .Hint("--fallback dequantize stores the tensor as floats");
      }
      for (const QuantizedLinear* linear : source.modules) {
        plan_.sources.not_held.emplace(linear->module(), NotHeld{.why = why});
      }
    }
    return {};
  }

  static std::span<const uint64_t> Span(const Dims& dims) { return {dims.begin(), dims.size()}; }

  GgmlType PlainType(const std::string& wanted, const std::set<size_t>& numbers) const {
    if (const GgmlTypeInfo* info = FindGgmlType(wanted); info != nullptr) return info->type;
    std::set<GgmlType> types;
    for (const size_t number : numbers) {
      types.insert(FloatTypeOf(plan_.sources.sources[number].plain->dtype));
    }
    return types.size() == 1 ? *types.begin() : GgmlType::kF32;
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

  // The module of every expert of a tensor of three dimensions, or the one of a matrix; empty if
  // rows of several share what has one global scale.
  std::vector<const QuantizedLinear*> ModuleOfEach(const PlannedTensor& tensor) const {
    const uint64_t count = tensor.dims.size() == 3 ? tensor.dims[2] : 1;
    MatrixModules modules(plan_.sources.sources, tensor.row_count() / count);
    const bool one_each =
        std::ranges::all_of(tensor.rows, [&](const RowPiece& piece) { return modules.Add(piece); });
    return one_each ? modules.Take() : std::vector<const QuantizedLinear*>();
  }

  Status Finish(PlannedTensor tensor) {
    const std::string name = tensor.name;
    plan_.tensors.push_back(std::move(tensor));
    AddScales(name, ".scale", &QuantizedLinear::global_scale);
    AddScales(name, ".input_scale", &QuantizedLinear::input_global_scale);
    modules_.clear();
    return {};
  }

  // NVFP4 has a factor for each matrix, and one for its activations, beside the tensor.
  using ScaleOf = const std::optional<GlobalScale>& (QuantizedLinear::*)() const;
  void AddScales(std::string_view name, std::string_view ending, ScaleOf scale_of) {
    std::vector<float> scales;
    for (const QuantizedLinear* module : modules_) {
      const std::optional<GlobalScale>& scale = (module->*scale_of)();
      scales.push_back(scale ? Factor(*scale) : 1);
    }
    if (std::ranges::all_of(scales, [](float scale) { return scale == 1; })) return;
    PlannedTensor tensor;
    tensor.name = fmt::format("{}{}", name.substr(0, name.size() - kWeightEnding.size()), ending);
    tensor.dims.push_back(scales.size());
    tensor.scales = std::move(scales);
    plan_.tensors.push_back(std::move(tensor));
  }

  const PlanOptions& options_;
  Plan& plan_;
  std::vector<const QuantizedLinear*> modules_;  // of a tensor of NVFP4, one for each matrix
};

// In the order in which the checkpoint has what they are made of, so that reading is sequential.
void SortAsSource(const Checkpoint& checkpoint, Plan& plan) {
  const auto place = [&](const PlannedTensor& tensor) -> std::pair<size_t, uint64_t> {
    if (tensor.rows.empty()) return {0, 0};
    const Source& source = plan.sources.sources[tensor.rows.front().source];
    const StoredTensor* stored = source.plain;
    if (stored == nullptr)
      stored = checkpoint.Find(source.modules.front()->source_tensors().front());
    if (stored == nullptr) return {0, 0};
    return {stored->file, stored->offset};
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
  PREPACK_TRY_ASSIGN(plan.sources, FindSources(checkpoint, model));
  if (!options.probe) PREPACK_TRY(ChooseTypes(options, plan.sources));
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
