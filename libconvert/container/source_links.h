#ifndef PREPACK_CONTAINER_SOURCE_LINKS_H_
#define PREPACK_CONTAINER_SOURCE_LINKS_H_

// A checkpoint comes from anywhere, and its side files are copied into the output: a link in it to
// /home/me/.ssh/id_rsa would publish that file with the packed model. So links are followed only
// within the folder, and into the blobs of a hub cache, which holds every file once and has
//
//     models--ORG--NAME/snapshots/REVISION/model.safetensors -> ../../blobs/HASH

#include <filesystem>

#include "base/status.h"

namespace prepack {

// May `file`, which is a symbolic link in the folder `source`, be followed?
Status CheckSourceLink(const std::filesystem::path& source, const std::filesystem::path& file);

}  // namespace prepack

#endif  // PREPACK_CONTAINER_SOURCE_LINKS_H_
