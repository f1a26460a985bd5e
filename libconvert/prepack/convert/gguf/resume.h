#pragma once

// What a conversion to GGUF is bound to, what its journal (convert/resume.h) says of a unit, and
// whether it has been done already.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "prepack/base/progress.h"
#include "prepack/base/status.h"
#include "prepack/container/checkpoint.h"
#include "prepack/convert/gguf/manifest.h"
#include "prepack/convert/gguf/options.h"
#include "prepack/convert/gguf/plan.h"
#include "prepack/convert/gguf/writer.h"
#include "prepack/convert/resume.h"
#include "prepack/packed/run_identity.h"
#include "prepack/packed/source_identity.h"

namespace prepack::gguf {

// With all that llama.cpp's converter has said, and what it has computed.
Result<RunIdentity> IdentityOf(const Checkpoint& checkpoint, const Plan& plan,
                               const PlanOptions& options, uint64_t shard_bytes);

FinishedUnit NoteOf(const Written& written, std::vector<SourceNote> sources);
// Nothing for a note that is none of a unit of GGUF.
std::optional<Written> WrittenOf(const FinishedUnit& finished);

// The tensors of the checkpoint that rows of the file are made of.
std::vector<const StoredTensor*> TensorsWithRows(const Checkpoint& checkpoint, const Plan& plan);

// The manifest of the model of which `first` is the first file; nothing when there is none that
// says what it was made by. kUsage when that was another conversion, or another source, of which
// what is here is read.
Result<std::optional<Manifest>> FindFinishedRun(const std::filesystem::path& first,
                                                const RunIdentity& identity,
                                                const Checkpoint& checkpoint, const Plan& plan,
                                                unsigned threads, Progress& progress);

}  // namespace prepack::gguf
