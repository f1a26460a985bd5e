prepack_add_tests(gemm
  engine_test.cpp
  reference_test.cpp)
if(oneDNN_FOUND)
  target_compile_definitions(test_gemm PRIVATE PREPACK_HAS_ONEDNN)
endif()
