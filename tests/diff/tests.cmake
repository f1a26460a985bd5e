prepack_add_tests(diff
  diff_test.cpp)
