# Finds xxHash (Debian: libxxhash-dev), which ships no CMake configuration.
# Defines the target xxHash::xxhash, and xxHash_DISPATCH where the library chooses among its code for
# SSE2, AVX2 and AVX-512 when it runs (xxh_x86dispatch.h), which not every build of it does.

find_path(xxHash_INCLUDE_DIR xxhash.h)
find_library(xxHash_LIBRARY xxhash)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(xxHash REQUIRED_VARS xxHash_LIBRARY xxHash_INCLUDE_DIR)
if(xxHash_FOUND AND NOT TARGET xxHash::xxhash)
  add_library(xxHash::xxhash UNKNOWN IMPORTED)
  set_target_properties(xxHash::xxhash PROPERTIES
    IMPORTED_LOCATION ${xxHash_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${xxHash_INCLUDE_DIR})
endif()

if(xxHash_FOUND)
  include(CMakePushCheckState)
  include(CheckCXXSymbolExists)
  cmake_push_check_state(RESET)
  set(CMAKE_REQUIRED_LIBRARIES xxHash::xxhash)
  check_cxx_symbol_exists(XXH3_128bits_update_dispatch xxh_x86dispatch.h xxHash_DISPATCH)
  cmake_pop_check_state()
endif()
mark_as_advanced(xxHash_INCLUDE_DIR xxHash_LIBRARY)
