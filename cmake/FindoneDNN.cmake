# Finds oneDNN and defines the target oneDNN::dnnl. oneDNN_STATIC says whether it is a static library.
#
#   1. a system oneDNN with a CMake configuration (package dnnl), if it is new enough, or the static one
#      that packaging/portable/build makes;
#   2. the build that tools/setup keeps, which is Intel's from PyPI (package onednn-devel). Set
#      oneDNN_ROOT to look for it elsewhere.
#
# Intel's build uses the SYCL runtime for the CPU. Its libraries lie in one folder and do not say
# where to find each other, so programs get a DT_RPATH (not DT_RUNPATH: that one does not count for
# the libraries of libraries); CMake itself puts the folder into it, and takes it out on
# installing. Its OpenCL driver is named at run time, see libconvert/prepack/gemm/onednn/query.h.

include(FindPackageHandleStandardArgs)

if(NOT oneDNN_FIND_VERSION)
  set(oneDNN_FIND_VERSION 3.7)
endif()
find_package(dnnl ${oneDNN_FIND_VERSION} CONFIG QUIET)
set(oneDNN_STATIC OFF)
if(dnnl_FOUND)
  get_target_property(_type DNNL::dnnl TYPE)
  if(_type STREQUAL "STATIC_LIBRARY")
    set(oneDNN_STATIC ON)
  endif()
  if(NOT TARGET oneDNN::dnnl)
    add_library(oneDNN::dnnl INTERFACE IMPORTED)
    set_target_properties(oneDNN::dnnl PROPERTIES INTERFACE_LINK_LIBRARIES DNNL::dnnl)
  endif()
  set(oneDNN_VERSION ${dnnl_VERSION})
  find_package_handle_standard_args(oneDNN REQUIRED_VARS dnnl_DIR VERSION_VAR oneDNN_VERSION)
  return()
endif()

if(DEFINED ENV{PREPACK_DEPS_DIR})
  set(_deps "$ENV{PREPACK_DEPS_DIR}")
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(_deps "$ENV{XDG_CACHE_HOME}/prepack")
else()
  set(_deps "$ENV{HOME}/.cache/prepack")
endif()
file(GLOB _kept LIST_DIRECTORIES true "${_deps}/onednn-*")
list(SORT _kept COMPARE NATURAL ORDER DESCENDING)

find_path(oneDNN_INCLUDE_DIR dnnl.hpp HINTS ${oneDNN_ROOT} ${_kept} PATH_SUFFIXES include
          NO_DEFAULT_PATH)
find_library(oneDNN_LIBRARY dnnl HINTS ${oneDNN_ROOT} ${_kept} PATH_SUFFIXES lib NO_DEFAULT_PATH)

if(oneDNN_INCLUDE_DIR AND EXISTS "${oneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h")
  file(STRINGS "${oneDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h" _lines
       REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+).*" "\\1.\\2.\\3"
         oneDNN_VERSION "${_lines}")
endif()

find_package_handle_standard_args(oneDNN
  REQUIRED_VARS oneDNN_LIBRARY oneDNN_INCLUDE_DIR VERSION_VAR oneDNN_VERSION
  REASON_FAILURE_MESSAGE "tools/setup installs it. Without it verify has its reference engine only")

if(oneDNN_FOUND AND NOT TARGET oneDNN::dnnl)
  add_library(oneDNN::dnnl UNKNOWN IMPORTED)
  set_target_properties(oneDNN::dnnl PROPERTIES
    IMPORTED_LOCATION "${oneDNN_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${oneDNN_INCLUDE_DIR}"
    INTERFACE_LINK_OPTIONS "-Wl,--disable-new-dtags")
endif()
mark_as_advanced(oneDNN_INCLUDE_DIR oneDNN_LIBRARY)
