prepack_add_tests(cli
  output_paths_test.cpp
  progress_display_test.cpp
  terminal_test.cpp
  table_test.cpp
  units_test.cpp
  verify_text_test.cpp)
target_link_libraries(test_cli PRIVATE prepack_cli)

# The tool as a whole, from Python: it needs jsonschema, numpy, safetensors and PyYAML, which tools/setup
# --tests puts into a virtual environment.
set(PREPACK_TEST_PYTHON "python3" CACHE STRING "Python with jsonschema, numpy, safetensors and PyYAML")
foreach(test check ci convert diff faults formats fuse hostile html inspect malformed onednn scale scale_docs
    terminal verify)
  add_test(NAME "tool: ${test}"
    COMMAND ${PREPACK_TEST_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/cli/${test}_test.py)
  set_tests_properties("tool: ${test}" PROPERTIES
    ENVIRONMENT "PREPACK_TOOL=$<TARGET_FILE:prepack>;PREPACK_SANITIZERS=${PREPACK_SANITIZE}" TIMEOUT 1500)
endforeach()
