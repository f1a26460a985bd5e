prepack_add_tests(io
  file_test.cpp
  mapping_test.cpp
  output_folder_test.cpp)
