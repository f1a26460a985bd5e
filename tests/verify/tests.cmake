prepack_add_tests(verify
  gemm_damage_test.cpp
  gemm_layouts_test.cpp
  kernel_weights_test.cpp
  packed_folder_test.cpp
  report_test.cpp
  second_decoder_test.cpp
  second_truth_test.cpp)
