prepack_add_tests(diff
  diff_test.cpp
  report_html_test.cpp
  weight_differences_test.cpp)
