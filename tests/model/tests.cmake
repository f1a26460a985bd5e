prepack_add_tests(model
  dequantize_test.cpp
  dequantized_linear_test.cpp
  kept_order_test.cpp
  panel_shape_test.cpp
  panel_test.cpp
  scheme_test.cpp
  stacked_linear_test.cpp)
