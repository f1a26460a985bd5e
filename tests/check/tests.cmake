prepack_add_tests(check
  baseline_test.cpp
  data_test.cpp
  experts_test.cpp
  junit_test.cpp
  missing_modules_test.cpp
  plain_values_test.cpp
  structure_test.cpp)
