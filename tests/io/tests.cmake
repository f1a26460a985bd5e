prepack_add_tests(io
  atomic_file_test.cpp
  escape_test.cpp
  file_test.cpp
  junit_xml_test.cpp
  mapping_test.cpp
  output_folder_test.cpp)
