prepack_add_tests(kernels
  bit_unpack_test.cpp
  byte_codes_test.cpp)
