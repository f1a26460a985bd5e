# Compiles for musl with zig, which brings that and LLVM's C++ library. `packaging/portable/build` writes the wrappers
# that this names.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR $ENV{PREPACK_ZIG_PROCESSOR})
set(CMAKE_C_COMPILER $ENV{PREPACK_ZIG_BIN}/cc)
set(CMAKE_CXX_COMPILER $ENV{PREPACK_ZIG_BIN}/c++)
set(CMAKE_AR $ENV{PREPACK_ZIG_BIN}/ar CACHE FILEPATH "")
set(CMAKE_RANLIB $ENV{PREPACK_ZIG_BIN}/ranlib CACHE FILEPATH "")
# The machine's own headers and libraries are for its own libc: none of them may be found.
set(CMAKE_FIND_ROOT_PATH $ENV{PREPACK_ZIG_PREFIX})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY BOTH)
set(CMAKE_SYSTEM_PREFIX_PATH /)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static)
  set(CMAKE_STRIP aarch64-linux-gnu-strip CACHE FILEPATH "")
else()
  # The program is made on the machine that it runs on, but for the libc.
  set(CMAKE_CROSSCOMPILING_EMULATOR /usr/bin/env)
endif()
