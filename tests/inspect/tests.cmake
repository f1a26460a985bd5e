prepack_add_tests(inspect
  byte_contents_test.cpp
  find_weight_test.cpp
  inspect_test.cpp
  name_patterns_test.cpp
  source_places_test.cpp
  summary_test.cpp)
