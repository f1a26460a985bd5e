#include "prepack/verify/gguf.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "prepack/convert/gguf/manifest.h"
#include "prepack/gguf/keys.h"
#include "prepack/gguf/model.h"
#include "prepack/verify/gguf_verification.h"

namespace prepack {
namespace {

Status CheckOptions(const VerifyOptions& options) {
  const auto refuse = [](std::string_view option) {
    return Usage(option, "this option is not for GGUF files");
  };
  if (options.baseline) return refuse("--baseline");
  if (options.activations) return refuse("--activations");
  if (options.sample) return refuse("--sample");
  if (options.engine == EngineChoice::kOneDnn) return refuse("--engine onednn");
  return {};
}

Result<gguf::Manifest> ManifestOf(const gguf::Model& model) {
  PREPACK_TRY_ASSIGN(const std::optional<std::string> hash, gguf::ManifestHashOf(model));
  if (hash) return gguf::ReadManifest(gguf::ManifestOf(model.path()), *hash);
  return Unsupported(model.path().string(), "prepack has not made this file")
      .Expected(fmt::format("the key {} in its metadata", gguf::kManifestHash))
      .Hint("`prepack check` judges files from elsewhere");
}

}  // namespace

Result<gguf::Manifest> ReadManifestOfGguf(const std::filesystem::path& file) {
  PREPACK_TRY_ASSIGN(const gguf::Model model, gguf::Model::Open(file));
  return ManifestOf(model);
}

Result<VerifyReport> VerifyGguf(const VerifyOptions& options, Progress& progress) {
  PREPACK_TRY(CheckOptions(options));
  PREPACK_TRY_ASSIGN(const gguf::Model model, gguf::Model::Open(options.folder));
  PREPACK_TRY_ASSIGN(const gguf::Manifest manifest, ManifestOf(model));
  GgufVerification verification(options, model, manifest, progress);
  PREPACK_TRY(verification.Prepare());
  PREPACK_TRY(verification.OpenSource());
  if (verification.has_source()) PREPACK_TRY(verification.CompareAll());
  return verification.Finish();
}

}  // namespace prepack
