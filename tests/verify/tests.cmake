prepack_add_tests(verify
  packed_folder_test.cpp
  report_test.cpp
  second_decoder_formats_test.cpp
  second_decoder_gptq_test.cpp
  second_decoder_test.cpp)
