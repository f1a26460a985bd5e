prepack_add_tests(formats
  module_regex_test.cpp)
