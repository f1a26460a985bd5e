prepack_add_tests(base
  cancellation_test.cpp
  checked_test.cpp
  dtype_test.cpp
  fixed_vector_test.cpp
  float_convert_test.cpp
  function_ref_test.cpp
  hash_test.cpp
  isa_test.cpp
  parallel_test.cpp
  parallel_units_test.cpp
  portable_memcmp_test.cpp
  printable_test.cpp
  progress_test.cpp
  random_test.cpp
  result_test.cpp
  scratch_test.cpp
  status_test.cpp
  suggest_test.cpp
  text_test.cpp)
# In a group g++ 12 sees strings written past their ends in it, where none is.
set_source_files_properties(base/printable_test.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
