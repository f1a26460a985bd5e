#include "options.h"
#include "prepack/base/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "command.h"
#include "gguf_commands.h"
#include "prepack/doctor/machine.h"
#include "prepack/io/file.h"
#include "prepack/layouts/table.h"
#include "prepack/packed/packed_model.h"
#include "prepack/tune/cpu_hint.h"
#include "terminal.h"

namespace prepack::cli {
namespace {

// Empty when there is no such folder.
std::filesystem::path Canonical(const std::filesystem::path& folder) {
  std::error_code error;
  return std::filesystem::canonical(folder.empty() ? "." : folder, error);
}

// Links are followed, as they are when it is written.
std::filesystem::path PlaceOf(const std::filesystem::path& file) {
  std::error_code error;
  std::filesystem::path existing = std::filesystem::canonical(file, error);
  if (!error) return existing;
  const std::filesystem::path folder = Canonical(file.parent_path());
  return folder.empty() ? folder : folder / file.filename();
}

}  // namespace

void OutputPaths::ProtectFolder(const std::filesystem::path& folder, std::string_view name) {
  // One that is not there is an error of whoever reads it.
  std::filesystem::path canonical = Canonical(folder);
  if (!canonical.empty()) folders_.push_back({std::move(canonical), std::string(name)});
}

void OutputPaths::ProtectFile(const std::filesystem::path& file, std::string_view name) {
  std::filesystem::path place = PlaceOf(file);
  if (!place.empty()) files_.push_back({std::move(place), std::string(name)});
}

Status OutputPaths::Add(std::string_view option, const std::filesystem::path& file) {
  const std::string where = fmt::format("{} {}", option, file.string());
  std::error_code error;
  if (!file.has_filename() || std::filesystem::is_directory(file, error)) {
    return Usage(where, "not the name of a file");
  }
  const std::filesystem::path place = PlaceOf(file);
  if (place.empty()) return SystemError(where, "its folder cannot be opened", ENOENT);
  for (const Named& folder : folders_) {
    if (!IsInside(place, folder.path)) continue;
    return Usage(where, fmt::format("it would be written into {}", folder.name))
        .Hint("Write reports somewhere else");
  }
  const auto same = std::ranges::find(files_, place, &Named::path);
  if (same != files_.end()) return Usage(where, fmt::format("{} is the same file", same->name));
  files_.push_back({place, std::string(option)});
  return {};
}

}  // namespace prepack::cli

namespace prepack::cli {
namespace {

std::vector<std::string> TargetNames() {
  std::vector<std::string> names;
  for (const Target& target : AllTargets()) names.emplace_back(target.id);
  names.emplace_back(kGgufTarget);
  return names;
}

}  // namespace

CLI::Option& AddAccept(CLI::App& command, std::vector<std::string>& accepted,
                       const std::string& help) {
  return *command.add_option("--accept", accepted, help)
              ->type_name("ID[=PATTERN]")
              ->allow_extra_args(false);
}

void PlanFlags::AddTo(CLI::App& command) {
  command
      .add_option("-t,--target", target, "Runtime to pack for (`prepack targets` lists them all)")
      ->required()
      ->check(Offers(TargetNames()))
      ->type_name("TARGET");
  command
      .add_option("--dtype", dtype,
                  "Dtype of the activations at run time: bf16, f16 or f32 (default: the dtype in "
                  "config.json)")
      ->check(CLI::IsMember({"bf16", "f16", "f32"}))
      ->type_name("DTYPE");
  command
      .add_option(
          "--scheme", schemes,
          "Arithmetic of the kernel: auto (the default: what the checkpoint says), w4a16, "
          "w4a8, w8a8, w8a16, or bf16 (weights as any runtime loads them, whatever the CPU). With "
          "PATTERN=, applies only to modules whose name matches the regular expression. @FILE "
          "reads such lines from a file, as `prepack tune` writes it. May be repeated; the last "
          "match decides")
      ->check(Offers({"auto", "w4a16", "w4a8", "w8a8", "w8a16", "bf16"}))
      ->type_name("[PATTERN=]SCHEME")
      ->allow_extra_args(false);
  command
      .add_option(
          "--fallback", fallback,
          "What to do with a module that no layout takes: keep it as stored, dequantize it "
          "to bf16, or stop with an error (for gguf the default); for gguf also q8_0, which "
          "quantizes it to 8 bits")
      ->check(CLI::IsMember({"keep", "dequantize", "error", "q8_0"}))
      ->capture_default_str()
      ->type_name("WHAT");
  command
      .add_option("--scales", scales,
                  "How to store scales: runtime rounds them as the runtime itself would; exact "
                  "keeps them in f32 where the layout can hold that")
      ->check(CLI::IsMember({"runtime", "exact"}))
      ->capture_default_str()
      ->type_name("HOW");
  command
      .add_option("--onednn-form", onednn_form,
                  "Form of 8-bit weights for oneDNN: blocked for CPUs with AVX-512 VNNI, plain for "
                  "CPUs without it, or native, the form that oneDNN asks for on this machine")
      ->check(CLI::IsMember({"blocked", "plain", "native"}))
      ->capture_default_str()
      ->type_name("FORM");
  AddAccept(command, accepted, kAcceptToRead)
      .check(Offers({ConvertibleFindings().begin(), ConvertibleFindings().end()}));
  command
      .add_option("--numa", numa_nodes,
                  "For kt: how many NUMA nodes the experts are cut for. Must be the server's "
                  "--kt-threadpool-count")
      ->capture_default_str()
      ->type_name("NODES");
  command.add_flag(
      "--fuse", fuse,
      "Pack q, k and v as one module (qkv_proj), gate and up as another (gate_up_proj), and all "
      "experts of a layer as two stacks, as vLLM holds them, and a large head or attention that is "
      "not quantized as vllm-cpu/bf16-vnni: vLLM can then use the mapped file without a copy");
}

Result<std::vector<SchemeNotes>> PlanFlags::Notes() const {
  std::vector<SchemeNotes> notes;
  for (const std::string& text : schemes) {
    if (!text.starts_with('@')) continue;
    PREPACK_TRY_ASSIGN(SchemeFile file, ReadSchemeFile(text.substr(1)));
    notes.push_back({.file = text.substr(1), .lines = std::move(file.comments)});
  }
  return notes;
}

Result<PlanOptions> PlanFlags::ToOptions() const {
  PlanOptions options;
  options.target = target;
  if (!dtype.empty()) options.activation_dtype = ActivationDTypeFromName(dtype);
  for (const std::string& text : schemes) {
    if (text.starts_with('@')) {
      PREPACK_TRY_ASSIGN(const SchemeFile file, ReadSchemeFile(text.substr(1)));
      options.schemes.insert(options.schemes.end(), file.choices.begin(), file.choices.end());
      continue;
    }
    PREPACK_TRY_ASSIGN(SchemeChoice choice, ParseSchemeChoice(text));
    options.schemes.push_back(std::move(choice));
  }
  if (fallback == "q8_0") {
    return Usage("--fallback q8_0",
                 "this is for --target gguf only: other targets quantize nothing");
  }
  if (fallback == "dequantize") options.fallback = Fallback::kDequantize;
  if (fallback == "error") options.fallback = Fallback::kError;
  options.exact_scales = scales == "exact";
  if (onednn_form == "plain") options.onednn_form = OneDnnForm::kPlain;
  if (onednn_form == "native") options.onednn_form = OneDnnForm::kNative;
  options.fuse = fuse;
  options.numa_nodes = numa_nodes;
  PREPACK_TRY_ASSIGN(AcceptedFindings accept,
                     AcceptedFindings::Make(accepted, AcceptedBy::kConversion, "--accept"));
  options.accepted = std::move(accept);
  return options;
}

namespace {

bool PrintsHints(const CommonOptions& common) {
  return !common.json && !common.quiet && DisplayOf(Stream::kStderr).is_terminal;
}

}  // namespace

void PrintCpuHint(const Checkpoint& checkpoint, const QuantizedModel& model,
                  const PlanOptions& options, const CommonOptions& common) {
  if (!PrintsHints(common)) return;
  const std::string hint = CpuHint(checkpoint, model, options, ReadMachine().features);
  if (!hint.empty()) PrintNote(hint);
}

void PrintCpuHint(const std::filesystem::path& source, const PlanOptions& options,
                  const CommonOptions& common) {
  if (!PrintsHints(common)) return;
  const Result<Checkpoint> checkpoint = Checkpoint::Open(source);
  if (!checkpoint.ok()) return;
  const Result<QuantizedModel> model = ReadSourceModel(*checkpoint, options.accepted);
  if (model.ok()) PrintCpuHint(*checkpoint, *model, options, common);
}

}  // namespace prepack::cli
