prepack_add_tests(container
  checkpoint_test.cpp
  json_strict_test.cpp
  json_writer_test.cpp
  safetensors_corruption_test.cpp
  safetensors_test.cpp
  safetensors_writer_test.cpp
  tensor_shape_test.cpp)
