#include "output_paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "io/paths.h"

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
