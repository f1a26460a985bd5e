#pragma once

// Verifies a GGUF file that prepack has made: is it still what was written, and are its weights
// those of the source?
//
//   integrity  the bytes of every tensor have the hash that the manifest beside the file says
//   exactness  every weight equals the source's, which the second decoder decodes; where the type
//              of ggml has to round (the manifest counts it), it is off by no more than that
//   gemm       so does every weight that a model of ggml's product reads, and its products are
//              those of the source in f64 (gguf_products.h)

#include <filesystem>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/convert/gguf/manifest.h"
#include "prepack/verify/report/report.h"
#include "prepack/verify/verify.h"

namespace prepack {

// `options.folder` is the file. kUnsupported for a file that prepack has not made, and kUsage for
// options that are not for GGUF.
Result<VerifyReport> VerifyGguf(const VerifyOptions& options, Progress& progress);

// The manifest that the file, the first of a model, was made with. kUnsupported if there is none.
Result<gguf::Manifest> ReadManifestOfGguf(const std::filesystem::path& file);

}  // namespace prepack
