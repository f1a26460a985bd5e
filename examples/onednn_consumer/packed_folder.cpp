#include "packed_folder.h"

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "refusal.h"

namespace {

using nlohmann::json;
using Pair = std::array<uint64_t, 2>;

constexpr uint64_t kManifestVersion = 2;
constexpr uint64_t kLayoutVersion = 1;
constexpr uint64_t kMaxChannels = 1ULL << 31;  // keeps the products below from overflowing
constexpr uint64_t kLargestBlock = 4096;       // far above the blocks of any kernel

// --- JSON ---

// nlohmann/json silently keeps the last of two equal keys, so this function refuses them itself.
json ParseJson(const std::string& text, const std::string& file) {
  std::vector<std::set<std::string>> keys;  // of the objects that are still open
  const auto refuse_equal_keys = [&](int /*depth*/, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key &&
        !keys.back().insert(parsed.get<std::string>()).second) {
      throw Malformed(file, "a key is there twice: " + parsed.dump());
    }
    return true;
  };
  try {
    return json::parse(text, refuse_equal_keys);
  } catch (const json::parse_error& error) {
    throw Malformed(file, error.what());
  }
}

// A JSON object, and its place in the manifest for error messages. Each getter throws Refusal when
// the field is missing or has another type; nlohmann/json alone would turn -1 into a huge size.
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) throw Malformed(where_, "this is no JSON object");
  }

  const std::string& where() const { return where_; }
  bool Has(const std::string& key) const { return object_.contains(key); }
  bool IsNull(const std::string& key) const { return At(key).is_null(); }

  std::string String(const std::string& key) const {
    return Typed(key, &json::is_string, "string").get<std::string>();
  }
  bool Bool(const std::string& key) const {
    return Typed(key, &json::is_boolean, "boolean").get<bool>();
  }
  uint64_t Uint(const std::string& key) const {
    return Typed(key, &json::is_number_unsigned, "integer of 0 or more").get<uint64_t>();
  }
  std::vector<uint64_t> Uints(const std::string& key) const { return ToUints(key, At(key)); }
  Pair UintPair(const std::string& key) const { return ToPair(key, At(key)); }
  std::vector<Pair> UintPairs(const std::string& key) const {
    std::vector<Pair> pairs;
    for (const json& value : Typed(key, &json::is_array, "array of arrays")) {
      pairs.push_back(ToPair(key, value));
    }
    return pairs;
  }
  Fields Object(const std::string& key) const {
    return {Typed(key, &json::is_object, "object"), where_ + ": " + key};
  }
  // The members of the object `key`, which must be objects themselves.
  std::map<std::string, Fields> Objects(const std::string& key) const {
    const Fields object = Object(key);
    std::map<std::string, Fields> members;
    for (const auto& [name, value] : object.object_.items()) {
      members.emplace(name, object.Object(name));
    }
    return members;
  }

 private:
  const json& At(const std::string& key) const {
    const auto field = object_.find(key);
    if (field == object_.end()) throw Malformed(where_, "field \"" + key + "\" is missing");
    return *field;
  }

  void Require(bool right, const std::string& key, const json& found, const char* expected) const {
    if (right) return;
    throw Malformed(where_, "field \"" + key + "\" has the wrong type (found " + found.type_name() +
                                ", expected " + expected + ")");
  }

  const json& Typed(const std::string& key, bool (json::*is_right)() const noexcept,
                    const char* expected) const {
    const json& value = At(key);
    Require((value.*is_right)(), key, value, expected);
    return value;
  }

  std::vector<uint64_t> ToUints(const std::string& key, const json& value) const {
    constexpr const char* kExpected = "array of integers of 0 or more";
    Require(value.is_array(), key, value, kExpected);
    for (const json& number : value) Require(number.is_number_unsigned(), key, number, kExpected);
    return value.get<std::vector<uint64_t>>();
  }

  Pair ToPair(const std::string& key, const json& value) const {
    const std::vector<uint64_t> values = ToUints(key, value);
    if (values.size() != 2) throw Malformed(where_, "field \"" + key + "\" is no pair");
    return {values[0], values[1]};
  }

  const json& object_;
  std::string where_;
};

// --- The form of the weights ---

// Checks that the blocks are small enough to multiply their sizes, and that the matrix is padded to
// whole blocks.
bool IsSound(const WeightsForm& form) {
  uint64_t product = 1;
  for (const auto& [dim, size] : form.inner) {
    if (dim > 1 || size == 0 || size > kLargestBlock) return false;
    product *= size;
    if (product > kLargestBlock * kLargestBlock) return false;
  }
  for (size_t dim = 0; dim < form.dims.size(); ++dim) {
    const uint64_t block = form.BlockSize(dim);
    if (form.padded_dims[dim] != (form.dims[dim] + block - 1) / block * block) return false;
  }
  return true;
}

// Reads "memory_descriptor", which 8-bit modules have.
WeightsForm ReadForm(const Fields& fields, const Module& module) {
  WeightsForm form{.dims = fields.UintPair("dims"),
                   .padded_dims = fields.UintPair("padded_dims"),
                   .strides = fields.UintPair("strides"),
                   .inner = fields.UintPairs("inner_blocks"),
                   .s8s8_compensation = fields.Bool("s8s8_compensation"),
                   .zero_point_compensation = fields.Bool("zero_point_compensation")};
  const Pair dims = {module.k, module.n};
  if (form.dims != dims || !IsSound(form)) {
    throw Malformed(fields.where(), "it is no descriptor of the module's weights (found " +
                                        form.ToString() + ", expected dims " + json(dims).dump() +
                                        ")");
  }
  return form;
}

// 4-bit weights are always row-major [K, N].
WeightsForm PlainForm(const Module& module) {
  const Pair dims = {module.k, module.n};
  return {.dims = dims, .padded_dims = dims, .strides = {module.n, 1}, .inner = {}};
}

// The elements, then the sums.
uint64_t BytesOf8Bit(const WeightsForm& form) {
  const uint64_t sums = (form.s8s8_compensation ? 1 : 0) + (form.zero_point_compensation ? 1 : 0);
  return form.padded_dims[1] * (form.padded_dims[0] + sums * sizeof(int32_t));
}

// --- The parts of each layout, as prepack's docs/layouts/ describes them ---

struct ExpectedPart {
  std::string dtype;
  std::vector<uint64_t> shape;
  bool optional = false;
};

std::map<std::string, ExpectedPart> ExpectedParts(const Module& module,
                                                  const std::string& activation_dtype) {
  std::map<std::string, ExpectedPart> parts = {
      {"bias", {activation_dtype, {module.n}, /*optional=*/true}},
      {"input_order", {"I32", {module.k}, /*optional=*/true}}};
  if (module.Is4Bit()) {
    const uint64_t groups = module.k / module.group_size;
    parts["weight"] = {"U8", {module.k, module.n / 2}};
    parts["weight_scale"] = {"F32", {groups, module.n}};
    if (!module.symmetric) parts["weight_zero_point"] = {"U8", {groups, module.n / 2}};
    return parts;
  }
  const bool zero_points = !module.activations.symmetric;
  const bool is_static = module.HasStaticActivations();
  parts["weight"] = {"U8", {BytesOf8Bit(module.form)}};
  parts["weight_scale"] = {"F32", {module.n}};
  if (zero_points) parts["weight_sum"] = {"F32", {module.n}};
  if (is_static) parts["input_scale"] = {"F32", {1}};
  if (is_static && zero_points) parts["input_zero_point"] = {"I32", {1}};
  return parts;
}

uint64_t BytesPerElement(const std::string& dtype) {
  if (dtype == "U8") return 1;
  return dtype == "F16" || dtype == "BF16" ? 2 : 4;  // the others are F32 and I32
}

std::string Describe(const std::string& dtype, const std::vector<uint64_t>& shape) {
  return json(dtype).dump() + " " + json(shape).dump();
}

bool SuitsLayout(const Module& module) {
  const Activations& activations = module.activations;
  if (module.layout == "onednn/w8a8") {
    return activations.quantized && module.group_size == module.k;
  }
  if (module.n % 2 != 0) return false;
  if (module.layout == "onednn/w4a16") return !activations.quantized;
  return module.layout == "onednn/w4a8" && activations.quantized && activations.dynamic &&
         activations.symmetric;
}

// Checks the layout's name against the other fields, and each part against what the layout needs.
// Sets the parts' sizes in bytes.
void CheckParts(Module& module, const std::string& where, const std::string& activation_dtype) {
  if (!SuitsLayout(module)) {
    throw Malformed(where,
                    "layout " + json(module.layout).dump() + " does not go with the other fields");
  }
  const std::map<std::string, ExpectedPart> expected_parts =
      ExpectedParts(module, activation_dtype);
  for (const auto& [name, part] : module.parts) {
    if (expected_parts.contains(name)) continue;
    throw Malformed(where, "part " + json(name).dump() + " does not belong to its layout");
  }
  for (const auto& [name, expected] : expected_parts) {
    if (!module.Has(name)) {
      if (expected.optional) continue;
      throw Malformed(where, "part \"" + name + "\" is missing");
    }
    Part& part = module.parts.at(name);
    if (part.dtype != expected.dtype || part.shape != expected.shape) {
      throw Malformed(where, "part \"" + name + "\" is not as its layout says (found " +
                                 Describe(part.dtype, part.shape) + ", expected " +
                                 Describe(expected.dtype, expected.shape) + ")");
    }
    part.bytes = BytesPerElement(part.dtype);
    for (const uint64_t size : part.shape) part.bytes *= size;
  }
}

// --- The manifest ---

std::string ReadManifest(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw Malformed(path, "cannot be read. Is this a folder that prepack made?");
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

// Puts a text in single quotes for the shell.
std::string Quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string RebuildCommand(const Fields& source, const std::string& folder) {
  const std::string path = source.Has("path") ? folder + "/" + source.String("path") : "SOURCE";
  return "prepack convert " + Quoted(path) + " -o " + Quoted(folder) +
         " --target onednn --onednn-form native --force";
}

Part ReadPart(const Fields& fields) {
  Part part{.file = fields.String("file"),
            .offset = fields.Uint("offset"),
            .dtype = fields.String("dtype"),
            .shape = fields.Uints("shape")};
  // A name with a slash could lead out of the folder.
  if (part.file.empty() || part.file == ".." || part.file.find('/') != std::string::npos) {
    throw Malformed(fields.where(),
                    "field \"file\" is no plain file name (found " + json(part.file).dump() + ")");
  }
  return part;
}

Activations ReadActivations(const Fields& numbers) {
  if (numbers.IsNull("activations")) return {};
  const Fields fields = numbers.Object("activations");
  return {
      .quantized = true, .dynamic = fields.Bool("dynamic"), .symmetric = fields.Bool("symmetric")};
}

Module ReadModule(const std::string& name, const Fields& fields) {
  const std::vector<uint64_t> shape = fields.Uints("shape");
  Module module{.name = name,
                .layout = fields.String("layout"),
                .group_size = fields.Uint("group_size"),
                .symmetric = fields.Bool("symmetric"),
                .activations = ReadActivations(fields.Object("numbers"))};
  const bool sizes = shape.size() == 2 && shape[0] > 0 && shape[1] > 0 &&
                     shape[0] <= kMaxChannels && shape[1] <= kMaxChannels;
  if (!sizes || module.group_size == 0 || shape[1] % module.group_size != 0) {
    throw Malformed(fields.where(), "its shape is not [N, K] with groups that divide K");
  }
  module.n = shape[0];
  module.k = shape[1];
  for (const auto& [part, of_part] : fields.Objects("parts")) {
    module.parts[part] = ReadPart(of_part);
  }
  module.form =
      module.Is4Bit() ? PlainForm(module) : ReadForm(fields.Object("memory_descriptor"), module);
  if (fields.Has("onednn")) {
    const Fields origin = fields.Object("onednn");
    module.origin = {.version = origin.String("version"), .isa = origin.String("isa")};
  }
  return module;
}

}  // namespace

uint64_t WeightsForm::BlockSize(uint64_t dim) const {
  uint64_t block = 1;
  for (const auto& [inner_dim, size] : inner) block *= inner_dim == dim ? size : 1;
  return block;
}

uint64_t WeightsForm::Element(uint64_t n, uint64_t k) const {
  const Pair blocks = {BlockSize(0), BlockSize(1)};
  uint64_t element = strides[0] * (k / blocks[0]) + strides[1] * (n / blocks[1]);
  Pair rest = {k % blocks[0], n % blocks[1]};  // the place inside the block
  uint64_t stride = 1;
  for (auto block = inner.rbegin(); block != inner.rend(); ++block) {
    const auto [dim, size] = *block;
    element += rest[dim] % size * stride;
    rest[dim] /= size;
    stride *= size;
  }
  return element;
}

std::string WeightsForm::ToString() const {
  return "dims " + json(dims).dump() + ", padded " + json(padded_dims).dump() + ", strides " +
         json(strides).dump() + ", inner blocks " + json(inner).dump() +
         (s8s8_compensation ? ", sums for s8" : "") +
         (zero_point_compensation ? ", sums for zero points" : "");
}

PackedFolder OpenPackedFolder(const std::string& path) {
  const std::string file = path + "/prepack.json";
  const json document = ParseJson(ReadManifest(file), file);
  const Fields manifest(document, file);
  if (manifest.Uint("manifest_version") != kManifestVersion ||
      manifest.String("target") != "onednn") {
    throw Malformed(file,
                    "this is no manifest of version 2 for oneDNN. Pack with prepack convert "
                    "--target onednn");
  }
  PackedFolder folder{.path = path,
                      .activation_dtype = manifest.String("activation_dtype"),
                      .rebuild = RebuildCommand(manifest.Object("source"), path),
                      .modules = {}};
  const Fields layouts = manifest.Object("layouts");
  for (const auto& [name, fields] : manifest.Objects("modules")) {
    Module module = ReadModule(name, fields);
    if (!module.layout.starts_with("onednn/")) continue;  // dequantized to plain bf16
    if (layouts.Object(module.layout).Uint("version") != kLayoutVersion) {
      throw Refusal(Exit::kUnavailable, file + ": unknown version of " + module.layout +
                                            ". Pack again: " + folder.rebuild);
    }
    CheckParts(module, fields.where(), folder.activation_dtype);
    folder.modules.push_back(std::move(module));
  }
  return folder;
}
