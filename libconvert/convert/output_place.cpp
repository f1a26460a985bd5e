#include "convert/output_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "convert/manifest.h"

namespace prepack {
namespace {

bool IsInside(const std::filesystem::path& inner, const std::filesystem::path& outer) {
  const auto [rest, unused] = std::ranges::mismatch(outer, inner);
  return rest == outer.end();
}

std::filesystem::path Resolve(const std::filesystem::path& path) {
  // Of a relative path that does not exist yet, weakly_canonical makes no absolute one.
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  std::filesystem::path resolved = std::filesystem::weakly_canonical(absolute, error);
  if (error) resolved = absolute;
  // "folder/" ends in an empty component, which would not match.
  return resolved.has_filename() ? resolved : resolved.parent_path();
}

}  // namespace

Status CheckOutputPlace(const std::filesystem::path& source, const std::filesystem::path& output) {
  const std::filesystem::path from = Resolve(source);
  const std::filesystem::path to = Resolve(output);
  if (!IsInside(to, from) && !IsInside(from, to)) return {};
  return Usage(output.string(), "the output may not be the source, lie inside it or contain it")
      .Found(fmt::format("source {}", from.string()))
      .Hint("Choose a folder beside the source");
}

std::string PathToSource(const std::filesystem::path& source, const std::filesystem::path& output) {
  std::string path = Resolve(source).lexically_relative(Resolve(output)).string();
  return IsSourcePath(path) ? path : std::string();
}

Status CheckFreeSpace(const std::filesystem::path& folder, uint64_t bytes) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || space.available >= bytes) return {};  // unknown: the reservation will tell
  return SystemError(folder.parent_path().string(), "not enough space for the packed weights",
                     ENOSPC)
      .Found(fmt::format("{} bytes free", space.available))
      .Expected(fmt::format("{} bytes", bytes));
}

}  // namespace prepack
