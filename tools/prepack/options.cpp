#include "options.h"
#include "prepack/base/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "command.h"
#include "prepack/io/file.h"
#include "prepack/layouts/table.h"

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
  return names;
}

}  // namespace

void PlanFlags::AddTo(CLI::App& command) {
  command.add_option("-t,--target", target, "Runtime to pack for; `prepack targets` lists them")
      ->required()
      ->check(Offers(TargetNames()))
      ->type_name("TARGET");
  command
      .add_option(
          "--dtype", dtype,
          "Dtype of activations at run time: bf16, f16 or f32 (default: what config.json says)")
      ->check(CLI::IsMember({"bf16", "f16", "f32"}))
      ->type_name("DTYPE");
  command
      .add_option("--scheme", schemes,
                  "What to compute with: auto, w4a16, w4a8, w8a8 or w8a16; PATTERN=SCHEME for the "
                  "modules that the regular expression is found in; may be repeated, the last one "
                  "that fits decides (default: auto, what the checkpoint says)")
      ->check(Offers({"auto", "w4a16", "w4a8", "w8a8", "w8a16"}))
      ->type_name("[PATTERN=]SCHEME")
      ->allow_extra_args(false);
  command
      .add_option("--fallback", fallback,
                  "What becomes of a module that no layout takes: keep it as stored, dequantize it "
                  "to bf16, or error")
      ->check(CLI::IsMember({"keep", "dequantize", "error"}))
      ->capture_default_str()
      ->type_name("WHAT");
  command
      .add_option("--scales", scales,
                  "Scales as the runtime itself would hold them, or exact where a part can hold "
                  "f32: runtime or exact")
      ->check(CLI::IsMember({"runtime", "exact"}))
      ->capture_default_str()
      ->type_name("HOW");
  command
      .add_option("--onednn-form", onednn_form,
                  "Form of 8-bit weights for oneDNN: blocked, as CPUs with AVX-512 VNNI want them, "
                  "plain, as those without do, or native, as oneDNN asks for them on this machine")
      ->check(CLI::IsMember({"blocked", "plain", "native"}))
      ->capture_default_str()
      ->type_name("FORM");
  command
      .add_option(
          "--accept", accepted,
          "Findings, separated by commas, that you accept: scale-zero, groups whose "
          "scale is zero though they have codes; they are packed as the zeros that runtimes "
          "compute")
      ->delimiter(',')
      ->check(Offers({AcceptableFindings().begin(), AcceptableFindings().end()}))
      ->type_name("FINDING[,FINDING]")
      ->allow_extra_args(false);
  command.add_flag("--fuse", fuse,
                   "Pack q, k and v as one module (qkv_proj), and gate and up (gate_up_proj), as "
                   "vLLM holds them: it then uses the mapped file itself, without a copy");
}

Result<PlanOptions> PlanFlags::ToOptions() const {
  PlanOptions options;
  options.target = target;
  if (!dtype.empty()) options.activation_dtype = ActivationDTypeFromName(dtype);
  for (const std::string& text : schemes) {
    PREPACK_TRY_ASSIGN(SchemeChoice choice, ParseSchemeChoice(text));
    options.schemes.push_back(std::move(choice));
  }
  if (fallback == "dequantize") options.fallback = Fallback::kDequantize;
  if (fallback == "error") options.fallback = Fallback::kError;
  options.exact_scales = scales == "exact";
  if (onednn_form == "plain") options.onednn_form = OneDnnForm::kPlain;
  if (onednn_form == "native") options.onednn_form = OneDnnForm::kNative;
  options.fuse = fuse;
  PREPACK_TRY_ASSIGN(AcceptedFindings accept, AcceptedFindings::Make(accepted, "--accept"));
  options.accepted = std::move(accept);
  return options;
}

}  // namespace prepack::cli
