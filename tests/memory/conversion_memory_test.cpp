// Conversions stay inside their memory, whatever the size of the model: 64 MiB, and 8 MiB for every
// thread; and they do not allocate once they are under way.

#include <fmt/format.h>

#include "../bench/llama_checkpoint.h"
#include "../bench/sample_formats.h"
#include "catch.h"
#include "convert/convert.h"
#include "layouts/table.h"
#include "memory/counting_allocator.h"
#include "status_matchers.h"
#include "temp_folder.h"

namespace prepack {
namespace {

using testing::Allocated;
using testing::TempFolder;
using testing::Value;
