# Finds the 8-bit library of PCRE2 (Debian: libpcre2-dev), whose package there has no CMake
# configuration. Defines the target PCRE2::8BIT, as PCRE2's own configuration does.

find_path(PCRE2_INCLUDE_DIR pcre2.h)
find_library(PCRE2_LIBRARY pcre2-8)
if(PCRE2_INCLUDE_DIR)
  file(STRINGS ${PCRE2_INCLUDE_DIR}/pcre2.h lines REGEX "^#define PCRE2_(MAJOR|MINOR) +[0-9]+")
  list(TRANSFORM lines REPLACE "[^0-9]*2_[A-Z]+ +([0-9]+).*" "\\1")
  list(JOIN lines "." PCRE2_VERSION)
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(PCRE2
  REQUIRED_VARS PCRE2_LIBRARY PCRE2_INCLUDE_DIR VERSION_VAR PCRE2_VERSION)
if(PCRE2_FOUND AND NOT TARGET PCRE2::8BIT)
  add_library(PCRE2::8BIT UNKNOWN IMPORTED)
  set_target_properties(PCRE2::8BIT PROPERTIES
    IMPORTED_LOCATION ${PCRE2_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${PCRE2_INCLUDE_DIR})
endif()
mark_as_advanced(PCRE2_INCLUDE_DIR PCRE2_LIBRARY)
