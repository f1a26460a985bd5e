prepack_add_tests(base)
# In a group g++ 12 sees strings written past their ends in it, where none is.
set_source_files_properties(base/printable_test.cpp PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
