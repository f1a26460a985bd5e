prepack_add_tests(convert
  manifest_test.cpp
  onednn_form_test.cpp
  output_place_test.cpp
  output_shards_test.cpp
  plan_test.cpp
  source_hash_test.cpp
  work_list_test.cpp)
