prepack_add_tests(formats
  compressed_tensors_config_test.cpp
  compressed_tensors_match_test.cpp
  compressed_tensors_truth_test.cpp
  module_match_test.cpp
  module_regex_test.cpp
  table_test.cpp)
