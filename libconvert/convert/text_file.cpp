#include "convert/text_file.h"

#include <span>

namespace prepack {

Result<TextFile> TextFile::Create(const std::filesystem::path& path) {
  Result<File> file = File::CreateNew(path);
  if (!file.ok()) return file.status();
  return TextFile(*std::move(file));
}

void TextFile::Append(std::string_view text) {
  if (!status_.ok()) return;
  status_ = file_.WriteAt(bytes_, std::as_bytes(std::span(text)));
  bytes_ += text.size();
}

Status TextFile::Finish() {
  return status_.ok() ? file_.Sync() : status_;
}

}  // namespace prepack
