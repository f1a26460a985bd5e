# Which of the two there is depends on the build, like the sources that they test: with oneDNN its
# tests must run, and nothing is skipped on the quiet.
if(oneDNN_FOUND)
  set(onednn_test onednn_descriptor_test.cpp onednn_engine_test.cpp)
else()
  set(onednn_test onednn_missing_test.cpp)
  message(STATUS "Built without oneDNN: the tests of its engine are left out")
endif()
prepack_add_tests(gemm
  activation_quantizers_test.cpp
  engine_test.cpp
  experts_on_arm_test.cpp experts_op_test.cpp
  kernel_model_errors_test.cpp
  kernel_model_slab_test.cpp
  kernel_model_test.cpp
  model_digests_test.cpp
  model_ggml_test.cpp
  model_rows_test.cpp
  onednn_fields_test.cpp
  reference_test.cpp
  ${onednn_test})
