# The tests of kernels and layouts once more, with AVX-512 emulated in portable code: so the source of
# these kernels is tested on every machine. (Machine code for AVX-512 runs in the other tests, on CPUs
# that have it.) Objects of a program go before those of a library: the emulated kernels take the place
# of those in libconvert, and the tests find them supported.

find_path(PREPACK_SIMDE simde/x86/avx512.h)
if(NOT PREPACK_SIMDE)
  message(STATUS "SIMDe was not found: emulated AVX-512 is not tested")
  return()
endif()

get_target_property(kernels libprepack AVX512_KERNELS)
add_library(emulated_avx512 OBJECT emulated_avx512/cpu_supports.cpp ${kernels})
set_target_properties(emulated_avx512 PROPERTIES
  EXPORT_COMPILE_COMMANDS OFF  # clang-tidy sees the real ones
  UNITY_BUILD OFF)             # kernels have names in common
target_compile_definitions(emulated_avx512 PRIVATE PREPACK_EMULATE_AVX512)
target_compile_options(emulated_avx512 PRIVATE -Wno-psabi)
if(PREPACK_SANITIZE)
  # SIMDe multiplies and shifts beyond what the language defines. Options of a source come after those of
  # all libraries.
  set_source_files_properties(${kernels} PROPERTIES
    COMPILE_OPTIONS -fno-sanitize=signed-integer-overflow,shift)
endif()
target_include_directories(emulated_avx512 SYSTEM BEFORE PRIVATE emulated_avx512/stand_in ${PREPACK_SIMDE})
target_link_libraries(emulated_avx512 PRIVATE libprepack prepack_options)

# prepack_test_emulated(FOLDER [NAME...]): test_FOLDER again, of FOLDER/NAME_test.cpp (default: of all). A
# unity build puts just these together.
function(prepack_test_emulated folder)
  get_target_property(files test_${folder} SOURCES)
  if(ARGN)
    list(JOIN ARGN "|" names)
    list(FILTER files INCLUDE REGEX "/(${names})_test")
  endif()
  set_source_files_properties(${files} PROPERTIES UNITY_GROUP emulated_${folder})
  list(TRANSFORM files REPLACE ".*/(.*)_test.cpp" "\\1")
  list(JOIN files "|" names)
  add_executable(test_${folder}_emulated $<TARGET_OBJECTS:emulated_avx512>
    "$<FILTER:$<TARGET_OBJECTS:test_${folder}>,INCLUDE,/(${names})_test|/unity_emulated_${folder}_>")
  target_link_libraries(test_${folder}_emulated PRIVATE test_main)
  prepack_discover_tests(test_${folder}_emulated ${folder} "${folder} with AVX-512 emulated: ")
endfunction()

prepack_test_emulated(kernels)
prepack_test_emulated(layouts fingerprint golden round_trip unit_blocks)
