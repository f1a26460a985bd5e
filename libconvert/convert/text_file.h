#ifndef PREPACK_CONVERT_TEXT_FILE_H_
#define PREPACK_CONVERT_TEXT_FILE_H_

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "io/file.h"

namespace prepack {

// A new file that is written piece by piece. The first error stays and is what Finish returns, so
// that those who write need not look.
class TextFile {
 public:
  static Result<TextFile> Create(const std::filesystem::path& path);

  void Append(std::string_view text);
  // Flushes to the disk.
  Status Finish();

 private:
  explicit TextFile(File file) : file_(std::move(file)) {}

  File file_;
  uint64_t bytes_ = 0;  // written so far
  Status status_;
};

}  // namespace prepack

#endif  // PREPACK_CONVERT_TEXT_FILE_H_
