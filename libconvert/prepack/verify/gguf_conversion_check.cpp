#include "prepack/verify/gguf_conversion_check.h"

#include <fmt/format.h>

#include <utility>

#include "prepack/verify/gguf.h"

namespace prepack {
namespace {

constexpr std::string_view kKind = "gguf";

std::string KeyOf(const gguf::WrittenRows& rows) {
  return fmt::format("{} {} {} {}", kKind, rows.first, rows.rows, rows.tensor);
}

MeasuredNote NoteOf(const gguf::WrittenRows& rows, std::string value) {
  return {
      .unit = fmt::format("tensor {}", rows.tensor), .key = KeyOf(rows), .value = std::move(value)};
}

}  // namespace

Status GgufConversionCheck::Begins(const std::filesystem::path& file, gguf::Manifest manifest,
                                   std::vector<MeasuredNote> notes) {
  for (MeasuredNote& note : notes) notes_[std::move(note.key)] = std::move(note.value);
  manifest_ = std::move(manifest);
  PREPACK_TRY_ASSIGN(gguf::Model model, gguf::Model::Open(file));
  model_.emplace(std::move(model));
  verification_.emplace(options_, *model_, manifest_, progress_);
  PREPACK_TRY(verification_->Prepare());
  return verification_->OpenSource();
}

Status GgufConversionCheck::Recall(const gguf::WrittenRows& rows) {
  const auto note = notes_.find(KeyOf(rows));
  if (note == notes_.end()) {
    return Usage("--verify", "an earlier run has consumed what some tensors were made of")
        .Found(rows.tensor)
        .Hint("Go on without --verify");
  }
  PREPACK_TRY_ASSIGN(GgufFound found, ReadGgufFound(note->second, "journal"));
  verification_->Count({rows.tensor, rows.first, rows.rows}, std::move(found));
  return {};
}

Result<std::vector<MeasuredNote>> GgufConversionCheck::SourceMayGo(
    std::span<const gguf::WrittenRows> written) {
  std::vector<MeasuredNote> notes;
  std::vector<GgufRange> ranges;
  std::vector<const gguf::WrittenRows*> compared;
  std::set<std::string> tensors;
  for (const gguf::WrittenRows& rows : written) {
    manifest_.tensors.at(rows.tensor).rounded.Add(rows.rounded);
    if (rows.rows == 0) continue;
    tensors.insert(rows.tensor);
    if (!rows.is_here) {
      PREPACK_TRY(Recall(rows));
      continue;
    }
    ranges.push_back({rows.tensor, rows.first, rows.rows});
    compared.push_back(&rows);
  }
  PREPACK_TRY_ASSIGN(std::vector<GgufFound> found, verification_->Compare(ranges));
  for (size_t i = 0; i < ranges.size(); ++i) {
    notes.push_back(NoteOf(*compared[i], GgufFoundJson(found[i]).dump()));
    verification_->Count(ranges[i], std::move(found[i]));
  }
  for (const std::string& tensor : tensors) {
    const std::optional<Problem> problem = verification_->ProblemOf(tensor);
    if (!problem) continue;
    return CheckFailed(problem->where, problem->message)
        .Hint("The shards that it was made of have not been removed");
  }
  return notes;
}

Status GgufConversionCheck::SourceFileMoved(size_t file) {
  return verification_ ? verification_->ReopenSource(file) : Status();
}

// The file has got its name, and another header; its tensors lie where they did.
Result<VerifyReport> GgufConversionCheck::Finish() {
  if (!verification_) return VerifyGguf(options_, progress_);
  PREPACK_TRY_ASSIGN(const gguf::Manifest complete, ReadManifestOfGguf(options_.folder));
  for (const auto& [name, record] : complete.tensors) {
    gguf::ManifestTensor& known = manifest_.tensors.at(name);
    known.hash = record.hash;
    known.rounded = record.rounded;
  }
  return verification_->Finish();
}

}  // namespace prepack
