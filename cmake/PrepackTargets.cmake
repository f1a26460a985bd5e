# Compile options that every target of the project shares.

add_library(prepack_options INTERFACE)
target_compile_features(prepack_options INTERFACE cxx_std_20)
target_compile_options(prepack_options INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wshadow)
if(PREPACK_WERROR)
  target_compile_options(prepack_options INTERFACE -Werror)
endif()
if(PREPACK_SANITIZE)
  target_compile_options(prepack_options INTERFACE
    -fsanitize=${PREPACK_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
    # g++ 12 with sanitizers sees uninitialised values in the standard library's own headers.
    -Wno-maybe-uninitialized)
  target_link_options(prepack_options INTERFACE -fsanitize=${PREPACK_SANITIZE})
endif()
