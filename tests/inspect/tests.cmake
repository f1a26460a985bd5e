prepack_add_tests(inspect
  inspect_test.cpp)
