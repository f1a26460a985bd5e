prepack_add_tests(kernels)

# What the files for AVX2 and AVX-512 share with the rest of the program if nothing is inlined.
if(PREPACK_X86 AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  get_target_property(avx2 libprepack AVX2_KERNELS)
  get_target_property(avx512 libprepack AVX512_KERNELS)
  add_library(kernels_unoptimised OBJECT ${avx2} ${avx512}
    ${PROJECT_SOURCE_DIR}/libconvert/prepack/gemm/reference_avx2.cpp
    ${PROJECT_SOURCE_DIR}/libconvert/prepack/gemm/reference_avx512.cpp)
  set_target_properties(kernels_unoptimised PROPERTIES
    EXPORT_COMPILE_COMMANDS OFF  # clang-tidy sees the real ones
    UNITY_BUILD OFF)
  target_compile_options(kernels_unoptimised PRIVATE -O0)
  target_link_libraries(kernels_unoptimised PRIVATE libprepack prepack_options Eigen3::Eigen xsimd_headers)
  add_test(NAME "kernels: symbols"
    COMMAND ${PREPACK_TEST_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/kernels/symbols_test.py
      $<TARGET_OBJECTS:kernels_unoptimised>
    COMMAND_EXPAND_LISTS)
  set_tests_properties("kernels: symbols" PROPERTIES TIMEOUT ${PREPACK_TEST_TIMEOUT})
endif()
