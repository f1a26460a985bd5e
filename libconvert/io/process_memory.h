#ifndef PREPACK_IO_PROCESS_MEMORY_H_
#define PREPACK_IO_PROCESS_MEMORY_H_

#include <cstdint>

#include "base/result.h"

namespace prepack {

// Bytes of memory that this process has now and that no file is behind (RssAnon): not the page
// cache, nor files that are mapped.
Result<uint64_t> AnonymousMemory();

}  // namespace prepack

#endif  // PREPACK_IO_PROCESS_MEMORY_H_
