prepack_add_tests(report
  charts_test.cpp
  depth_order_test.cpp
  page_test.cpp
  scatter_test.cpp
  table_test.cpp)
