# What every target of the project shares.

# The instruction sets that kernels have bodies for; on others prepack runs the scalar twins.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  set(PREPACK_X86 ON)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(PREPACK_ARM ON)
endif()

add_library(prepack_options INTERFACE)
target_compile_features(prepack_options INTERFACE cxx_std_20)
target_compile_options(prepack_options INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
# Numbers are the same on every CPU: a * b + c is rounded twice unless the code says std::fma, on CPUs with
# fused multiply-add as well. Models of kernels depend on it.
target_compile_options(prepack_options INTERFACE -ffp-contract=off)
# Checkpoints are hostile input: an index out of range or a smashed stack ends the process instead of
# going on, and the program lies at a random address, with tables that nobody can overwrite.
option(PREPACK_HARDENING "Checks and protections for a program that reads hostile files" ON)
if(PREPACK_HARDENING AND NOT PREPACK_SANITIZE)
  target_compile_definitions(prepack_options INTERFACE _GLIBCXX_ASSERTIONS)
  # Needs optimisation, and distributions may have set another level.
  target_compile_options(prepack_options INTERFACE -fstack-protector-strong
    $<$<CONFIG:Release,RelWithDebInfo>:-U_FORTIFY_SOURCE>
    $<$<CONFIG:Release,RelWithDebInfo>:-D_FORTIFY_SOURCE=2>)
  # By hand, not by CMake: it would compile static libraries with -fPIC and programs with -fPIE, which
  # then could not share their precompiled headers.
  set(is_pic $<OR:$<BOOL:$<TARGET_PROPERTY:POSITION_INDEPENDENT_CODE>>,$<STREQUAL:$<TARGET_PROPERTY:TYPE>,MODULE_LIBRARY>>)
  target_compile_options(prepack_options INTERFACE $<$<NOT:${is_pic}>:-fPIE>)
  target_link_options(prepack_options INTERFACE
    $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-pie> -Wl,-z,relro,-z,now)
endif()
if(PREPACK_WERROR)
  target_compile_options(prepack_options INTERFACE -Werror)
endif()
if(PREPACK_SANITIZE)
  target_compile_options(prepack_options INTERFACE
    -fsanitize=${PREPACK_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
    # g++ 12 with sanitizers sees uninitialised values in the standard library's own headers.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(prepack_options INTERFACE -fsanitize=${PREPACK_SANITIZE})
endif()
if(PREPACK_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "PREPACK_FUZZ asks for clang (cmake --preset fuzz), not ${CMAKE_CXX_COMPILER}")
  endif()
  target_compile_options(prepack_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# prepack_group_sources(TARGET): what a unity build (CMAKE_UNITY_BUILD, which most presets ask for) reads
# as one file: up to 16 files of a folder, in the order of their names. Layouts of the library give their
# functions the same names, and stay apart.
function(prepack_group_sources target)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources EXCLUDE REGEX "libconvert/prepack/layouts/")
  list(SORT sources)
  set(folder_before "")
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE folder)
    cmake_path(GET folder PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    if(NOT folder STREQUAL folder_before)
      set(number 0)
      set(folder_before ${folder})
    endif()
    math(EXPR group "${number} / 16")
    string(MAKE_C_IDENTIFIER "${folder}_${group}" group)
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
    math(EXPR number "${number} + 1")
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()
