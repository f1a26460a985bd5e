prepack_add_tests(layouts
  eligibility_test.cpp
  fingerprint_test.cpp
  golden_test.cpp
  placement_test.cpp
  round_trip_test.cpp
  parameters_test.cpp
  table_test.cpp)
