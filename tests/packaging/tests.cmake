# What is given away: the installation and the packages, from the outside, of a build as users have it:
# debug information names the folder of the sources, and with sanitizers a stranger's program would
# need them, too.
if(PREPACK_SANITIZE OR NOT CMAKE_BUILD_TYPE STREQUAL "Release")
  return()
endif()

# prepack_add_packaging_test(NAME): tests/packaging/NAME_test.py
function(prepack_add_packaging_test name)
  add_test(NAME "packaging: ${name}"
    COMMAND ${PREPACK_TEST_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/packaging/${name}_test.py)
  set_tests_properties("packaging: ${name}" PROPERTIES TIMEOUT 900 COST ${PREPACK_PYTHON_TEST_COST}
    ENVIRONMENT "PREPACK_TOOL=$<TARGET_FILE:prepack>;PREPACK_BUILD=${PROJECT_BINARY_DIR};PREPACK_CLI_DOCS=${PREPACK_CLI_DOCS_DIR};PREPACK_CLI_DOCS_TOOL=$<TARGET_FILE:cli_docs>;PYTHONPATH=${CMAKE_CURRENT_SOURCE_DIR}/cli")
endfunction()

prepack_add_packaging_test(install)
prepack_add_packaging_test(completion)
prepack_add_packaging_test(deb)
prepack_add_packaging_test(wheel)
prepack_add_packaging_test(release)
