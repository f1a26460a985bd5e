prepack_add_tests(cli)
target_link_libraries(test_cli PRIVATE prepack_cli)

# The tool as a whole, from Python: it needs jsonschema, numpy, safetensors, PyYAML, huggingface_hub and
# pre-commit, which tools/setup --tests puts into a virtual environment.
set(PREPACK_TEST_PYTHON "python3" CACHE STRING "Python with jsonschema, numpy, safetensors and PyYAML")
foreach(test accept check checkpoint_targets ci ci_files convert damage diff docs doctor experts faults fixtures flow formats fuse gguf gguf_convert gguf_flow gguf_source hostile html hub inspect
    judge kt links malformed memory messages onednn packed_source parts plain_modules replaced_source sanitize_share scale
    scale_docs streams terminal
    tune verify without_onednn)
  add_test(NAME "tool: ${test}"
    COMMAND ${PREPACK_TEST_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/cli/${test}_test.py)
  set_tests_properties("tool: ${test}" PROPERTIES
    ENVIRONMENT "PREPACK_TOOL=$<TARGET_FILE:prepack>;PREPACK_SANITIZERS=${PREPACK_SANITIZE}" TIMEOUT 1500
    COST ${PREPACK_PYTHON_TEST_COST})
endforeach()

# docs/layouts/ is generated.
add_test(NAME "docs: layouts are what layouts_doc writes"
  COMMAND ${PREPACK_TEST_PYTHON} ${PROJECT_SOURCE_DIR}/tools/layouts_doc/layouts_doc.py --check
    --prepack $<TARGET_FILE:prepack>)

# The example that documents run, built from the sources of the library as an installed one would be.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/libconvert/prepack ${PROJECT_BINARY_DIR}/include/prepack SYMBOLIC)
add_executable(read_tensor ${PROJECT_SOURCE_DIR}/examples/read_tensor/main.cpp)
target_include_directories(read_tensor PRIVATE ${PROJECT_BINARY_DIR}/include)
target_link_libraries(read_tensor PRIVATE libprepack prepack_options)
