prepack_add_tests(canonical
  dequantize_test.cpp
  panel_test.cpp
  scheme_test.cpp)
