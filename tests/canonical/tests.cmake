prepack_add_tests(canonical
  panel_test.cpp
  scheme_test.cpp)
