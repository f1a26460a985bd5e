#ifndef PREPACK_CONTAINER_SOURCE_LINKS_H_
#define PREPACK_CONTAINER_SOURCE_LINKS_H_

// A checkpoint comes from anywhere, and its side files are copied into the output: a link in it to
// /home/me/.ssh/id_rsa would publish that file with the packed model. So links are followed only
// within the folder, and into the blobs of a hub cache, which holds every file once and has
//
//     models--ORG--NAME/snapshots/REVISION/model.safetensors -> ../../blobs/HASH

#include <filesystem>
#include <span>

#include "base/status.h"

namespace prepack {

// May `links`, symbolic links in the folder `source`, be followed? Else the error names the first
// that may not.
Status CheckSourceLinks(const std::filesystem::path& source,
                        std::span<const std::filesystem::path> links);

}  // namespace prepack

#endif  // PREPACK_CONTAINER_SOURCE_LINKS_H_
