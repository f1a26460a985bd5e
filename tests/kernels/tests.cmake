prepack_add_tests(kernels
  awq_kernels_test.cpp
  bit_unpack_test.cpp
  byte_codes_test.cpp
  nibble_columns_test.cpp
  nibble_pairs_test.cpp
  nibble_transpose_test.cpp
  unit_transpose_test.cpp)
