prepack_add_tests(gguf blocks_test.cpp header_test.cpp model_test.cpp)
