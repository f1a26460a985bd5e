prepack_add_tests(check
  baseline_test.cpp
  data_test.cpp
  junit_test.cpp
  structure_test.cpp)
