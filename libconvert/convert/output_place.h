#ifndef PREPACK_CONVERT_OUTPUT_PLACE_H_
#define PREPACK_CONVERT_OUTPUT_PLACE_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"

namespace prepack {

// The output may not be the source, lie inside it, or contain it: the source is never touched.
Status CheckOutputPlace(const std::filesystem::path& source, const std::filesystem::path& output);

// The path from the output, where it will be in the end, to the source, for the manifest; empty
// when there is none that a manifest can hold.
std::string PathToSource(const std::filesystem::path& source, const std::filesystem::path& output);

// Is there room for `bytes` more on the file system of `folder`? Asked before the first byte is
// written, so that a conversion of hours does not end in a full disk.
Status CheckFreeSpace(const std::filesystem::path& folder, uint64_t bytes);

// What the files of these names take on the disk, of those that are there: a file's size less its
// holes.
uint64_t BytesOnDisk(const std::filesystem::path& folder, const std::vector<std::string>& names);

}  // namespace prepack

#endif  // PREPACK_CONVERT_OUTPUT_PLACE_H_
