# Which of the two there is depends on the build, like the sources that they test: with oneDNN its
# tests must run, and nothing is skipped on the quiet.
if(oneDNN_FOUND)
  prepack_add_tests(gemm -onednn_missing_test.cpp)
else()
  prepack_add_tests(gemm -onednn_descriptor_test.cpp -onednn_engine_test.cpp)
  message(STATUS "Built without oneDNN: the tests of its engine are left out")
endif()
