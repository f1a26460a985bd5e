#include "packed_folder.h"

#include <fstream>
#include <iterator>

#include "json_fields.h"
#include "layout_parts.h"
#include "refusal.h"

namespace {

constexpr uint64_t kManifestVersion = 2;
constexpr uint64_t kLayoutVersion = 1;
constexpr uint64_t kMaxChannels = 1ULL << 31;  // keeps all products below from overflowing

std::string ReadManifest(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw Refusal(Exit::kMalformed, path + ": cannot be read. Is this a folder that prepack made?");
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

// In single quotes, for a shell.
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
  if (part.file.empty() || part.file == ".." || part.file.find('/') != std::string::npos) {
    throw Malformed(fields.where(), "field \"file\" is no plain file name (found " +
                                        nlohmann::json(part.file).dump() + ")");
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
  const Fields parts = fields.Object("parts");
  for (const std::string& part : parts.Keys()) {
    module.parts[part] = ReadPart(parts.Object(part));
  }
  module.form = module.Is4Bit()
                    ? PlainForm(module.n, module.k)
                    : StoredForm(fields.Object("memory_descriptor"), module.n, module.k);
  if (fields.Has("onednn")) {
    const Fields origin = fields.Object("onednn");
    module.origin = {.version = origin.String("version"), .isa = origin.String("isa")};
  }
  return module;
}

}  // namespace

PackedFolder OpenPackedFolder(const std::string& path) {
  const std::string file = path + "/prepack.json";
  const nlohmann::json document = ParseJson(ReadManifest(file), file);
  const Fields manifest(document, file);
  if (manifest.Uint("manifest_version") != kManifestVersion ||
      manifest.String("target") != "onednn") {
    throw Refusal(Exit::kMalformed, file +
                                        ": this is no manifest of version 2 for oneDNN. Pack with "
                                        "prepack convert --target onednn");
  }
  PackedFolder folder{.path = path,
                      .activation_dtype = manifest.String("activation_dtype"),
                      .rebuild = RebuildCommand(manifest.Object("source"), path),
                      .modules = {}};
  const Fields layouts = manifest.Object("layouts");
  const Fields modules = manifest.Object("modules");
  for (const std::string& name : modules.Keys()) {
    Module module = ReadModule(name, modules.Object(name));
    if (!module.layout.starts_with("onednn/")) continue;  // dequantized: plain bf16
    if (layouts.Object(module.layout).Uint("version") != kLayoutVersion) {
      throw Refusal(Exit::kUnavailable, file + ": unknown version of " + module.layout +
                                            ". Pack again: " + folder.rebuild);
    }
    CheckParts(module, modules.Object(name).where(), folder.activation_dtype);
    folder.modules.push_back(std::move(module));
  }
  return folder;
}
