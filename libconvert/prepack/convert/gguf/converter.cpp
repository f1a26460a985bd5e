#include "prepack/convert/gguf/converter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>

#include "prepack/base/dtype.h"
#include "prepack/container/json_fields.h"
#include "prepack/convert/gguf/trace.h"
#include "prepack/io/file.h"
#include "prepack/io/noted_ranges.h"
#include "prepack/model/dequantized_linear.h"
#include "prepack/packed/small_parts.h"

namespace prepack::gguf {
namespace {

constexpr double kPatience = 3600;  // s: a model of a trillion weights takes minutes
constexpr uint64_t kFloatRows = 64;
constexpr uint64_t kPiece = uint64_t{1} << 20;  // as much as can be noted (io/noted_ranges.h)

std::string Quoted(std::string_view text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string ShapeOf(const Source& source) {
  const uint64_t n = source.rows_of_module();
  const uint64_t k = source.modules.front()->k();
  if (!source.transposed) return fmt::format("[{}, {}]", n, k);
  return fmt::format("[{}, {}, {}]", source.modules.size(), n, k);
}

// What the converter gets as values, not as a tracer: small things, and what no weight is
// (trace.py).
bool IsGivenAsValues(const StoredTensor& tensor) {
  constexpr std::array kFloats = {DType::kBF16, DType::kF16, DType::kF32, DType::kF64};
  return tensor.shape.size() < 2 || std::ranges::count(kFloats, tensor.dtype) == 0;
}

class Asking {
 public:
  Asking(const Checkpoint& checkpoint, const Sources& sources, const PlanOptions& options,
         const std::filesystem::path& scratch)
      : checkpoint_(checkpoint), sources_(sources), options_(options), scratch_(scratch) {
    answer_.files = {.plan = scratch / "plan.json",
                     .metadata = scratch / "metadata.gguf",
                     .values = scratch / "values.bin"};
  }

  Result<ConverterAnswer> Ask() {
    if (!options_.probe) PREPACK_TRY(WriteVectors());
    PREPACK_TRY_ASSIGN(Json first, AskOnce());
    const Json* needs = JsonMember(first, "needs");
    if (needs == nullptr) return Take(first);
    PREPACK_TRY(WriteFloats(*needs));
    PREPACK_TRY_ASSIGN(const Json second, AskOnce());
    return Take(second);
  }

 private:
  // A new process for each question: the converter keeps what it has seen.
  Result<Json> AskOnce() {
    const std::filesystem::path question = scratch_ / "question.json";
    std::filesystem::remove(question);
    PREPACK_TRY(WriteQuestion(question));
    PREPACK_TRY_ASSIGN(
        Child child,
        Child::Start({.arguments = {options_.python.string(), "-c", std::string(kTraceScript)},
                      .environment = {{"HF_HUB_OFFLINE", "1"}}}));
    PREPACK_TRY_ASSIGN(Json answer, child.Ask({{"question", question.string()}}, kPatience));
    const Json* error = JsonMember(answer, "error");
    if (error == nullptr) return answer;
    return Unsupported(options_.llama_cpp.string(),
                       "llama.cpp's converter does not convert this model")
        .Found(error->is_string() ? error->get<std::string>() : ShowJson(*error))
        .Hint("Does convert_hf_to_gguf.py of the same llama.cpp convert the unquantized model?");
  }

  Status WriteQuestion(const std::filesystem::path& path) {
    PREPACK_TRY_ASSIGN(TextFile file, TextFile::Create(path));
    std::vector<std::string> side_files;
    for (const std::string& name : checkpoint_.side_files()) {
      const bool is_code = std::filesystem::path(name).extension() == ".py";
      const bool is_quantizers = checkpoint_.side_configs().contains(name) && name != "params.json";
      if (is_quantizers || (is_code && !options_.trust_code)) continue;
      side_files.push_back(Quoted(name));
    }
    file.Append(fmt::format(
        "{{\"llama_cpp\": {}, \"model\": {}, \"metadata\": {}, \"plan\": {}, \"values\": {}, "
        "\"tokenizer\": {}, \"trust_code\": {}, \"probe\": {}, \"side_files\": [{}], \"tensors\": "
        "[",
        Quoted(options_.llama_cpp.string()), Quoted(checkpoint_.path().string()),
        Quoted(answer_.files.metadata.string()), Quoted(answer_.files.plan.string()),
        Quoted(answer_.files.values.string()), options_.tokenizer, options_.trust_code,
        options_.probe, fmt::join(side_files, ", ")));
    for (size_t i = 0; i < sources_.sources.size(); ++i) {
      file.Append(i == 0 ? "\n" : ",\n");
      file.Append(Entry(i));
    }
    file.Append("], \"stacks\": [");
    for (size_t i = 0; i < sources_.stacks.size(); ++i) {
      file.Append(i == 0 ? "\n" : ",\n");
      file.Append(StackEntry(sources_.stacks[i]));
    }
    file.Append("]}\n");
    return file.Finish();
  }

  static std::string StackEntry(const ExpertStack& stack) {
    std::string experts;
    for (const std::vector<size_t>& parts : stack.experts) {
      experts += fmt::format("{}[{}]", experts.empty() ? "" : ", ", fmt::join(parts, ", "));
    }
    return fmt::format(R"({{"name": {}, "experts": [{}], "alternating": {}, "transposed": {}}})",
                       Quoted(stack.name), experts, stack.joined == Joined::kAlternating,
                       stack.transposed);
  }

  std::string Entry(size_t index) const {
    const Source& source = sources_.sources[index];
    if (source.plain != nullptr) {
      const StoredTensor& tensor = *source.plain;
      return fmt::format(R"({{"name": {}, "shape": [{}], "dtype": "{}"{}}})", Quoted(source.name),
                         fmt::join(tensor.shape, ", "), DTypeName(tensor.dtype),
                         PlaceEntry(source));
    }
    std::string entry = fmt::format(R"({{"name": {}, "shape": {}, "transposed": {})",
                                    Quoted(source.name), ShapeOf(source), source.transposed);
    if (!source.types.empty()) {
      entry += fmt::format(R"(, "type": "{}")", InfoOf(source.types.front()).name);
    } else if (options_.if_not_held == IfNotHeld::kQ8_0) {
      entry += R"(, "type": "Q8_0")";
    }
    if (written_.contains(source.name)) {
      entry += fmt::format(R"(, "dtype": "F32"{})", PlaceEntry(source));
    }
    return entry + "}";
  }

  // Where the script finds the values; nothing: it is to say whether it needs them.
  std::string PlaceEntry(const Source& source) const {
    const auto written = written_.find(source.name);
    if (written == written_.end() && (source.plain == nullptr || MustBeRead(*source.plain)))
      return "";
    const Place place = written != written_.end()
                            ? written->second
                            : Place{.path = checkpoint_.files()[source.plain->file].file.path(),
                                    .offset = source.plain->offset};
    return fmt::format(R"(, "file": {}, "offset": {})", Quoted(place.path.string()), place.offset);
  }

  // The script opens files of the checkpoint, unless they are not here as a whole, or what is read
  // of them is noted.
  bool MustBeRead(const StoredTensor& tensor) const {
    return !checkpoint_.IsHere(tensor) ||
           NotedRanges::OfProcess().mode() == NotedRanges::Mode::kRead;
  }

  // What the script reads of every model, in one file.
  Status WriteVectors() {
    std::optional<File> file;
    uint64_t end = 0;
    for (const Source& source : sources_.sources) {
      const StoredTensor* tensor = source.plain;
      if (tensor == nullptr || !MustBeRead(*tensor) || !IsGivenAsValues(*tensor)) continue;
      const std::filesystem::path path = scratch_ / "vectors.bin";
      if (!file) {
        PREPACK_TRY_ASSIGN(file, File::CreateNew(path));
      }
      written_.emplace(source.name, Place{.path = path, .offset = end});
      PREPACK_TRY(CopyTensor(*tensor, &*file, end));
    }
    return {};
  }

  // In pieces that can be noted; null: it is read for that alone.
  Status CopyTensor(const StoredTensor& tensor, File* file, uint64_t& end) const {
    std::vector<std::byte> piece;
    for (uint64_t done = 0; done < tensor.bytes; done += piece.size()) {
      piece.resize(std::min(kPiece, tensor.bytes - done));
      PREPACK_TRY(checkpoint_.Read(tensor, done, piece));
      if (file == nullptr) continue;
      PREPACK_TRY(file->WriteAt(end, piece));
      end += piece.size();
    }
    return {};
  }

  // A file for each source that the converter computes with: codes as F32.
  Status WriteFloats(const Json& needs) {
    std::set<std::string> names;
    for (const Json& name : needs) {
      if (name.is_string()) names.insert(name.get<std::string>());
    }
    for (const Source& source : sources_.sources) {
      if (!names.contains(source.name)) continue;
      const std::filesystem::path path = scratch_ / fmt::format("values-{}.bin", written_.size());
      PREPACK_TRY_ASSIGN(File file, File::CreateNew(path));
      uint64_t offset = 0;
      if (source.plain != nullptr) PREPACK_TRY(CopyTensor(*source.plain, &file, offset));
      for (const QuantizedLinear* linear : source.modules) {
        PREPACK_TRY(WriteModule(*linear, file, offset));
      }
      written_.emplace(source.name, Place{.path = path, .offset = 0});
    }
    return {};
  }

  Status WriteModule(const QuantizedLinear& linear, File& file, uint64_t& offset) const {
    bool is_here = true;
    for (const StoredTensor* tensor : ReplacedTensors(checkpoint_, linear, false)) {
      if (!MustBeRead(*tensor)) continue;
      is_here = is_here && checkpoint_.IsHere(*tensor);
      PREPACK_TRY(CopyTensor(*tensor, nullptr, offset));
    }
    // For those who only want to know what is read, zeros will do.
    if (!is_here && NotedRanges::OfProcess().mode() == NotedRanges::Mode::kMissing) {
      offset += linear.n() * linear.k() * sizeof(float);
      return file.Resize(offset);
    }
    DequantizeBuffers buffers;
    std::vector<float> weights;
    for (uint64_t n0 = 0; n0 < linear.n(); n0 += kFloatRows) {
      const uint64_t rows = std::min(kFloatRows, linear.n() - n0);
      weights.resize(rows * linear.k());
      PREPACK_TRY(DequantizeRows(linear, n0, rows, buffers, weights));
      PREPACK_TRY(file.WriteAt(offset, std::as_bytes(std::span(weights))));
      offset += weights.size() * sizeof(float);
    }
    return {};
  }

  Result<ConverterAnswer> Take(const Json& answer) {
    Status status;
    JsonFields fields(answer, options_.llama_cpp.string(), status);
    answer_.has_tokenizer = fields.Bool("tokenizer");
    answer_.converter_class = fields.Text("class");
    if (!status.ok()) return status;
    return answer_;
  }

  const Checkpoint& checkpoint_;
  const Sources& sources_;
  const PlanOptions& options_;
  const std::filesystem::path& scratch_;
  struct Place {
    std::filesystem::path path;
    uint64_t offset = 0;
  };
  std::map<std::string, Place> written_;  // values of sources, for the script
  ConverterAnswer answer_;
};

}  // namespace

Result<ConverterAnswer> AskConverter(const Checkpoint& checkpoint, const Sources& sources,
                                     const PlanOptions& options,
                                     const std::filesystem::path& scratch) {
  return Asking(checkpoint, sources, options, scratch).Ask();
}

}  // namespace prepack::gguf
