# prepack attacked by what shares no code with it: packed folders that lie, made by hand (attacks) and of two valid
# ones (pairs), and mutants of checkpoints and packed folders (campaign). Longer runs: tools/attack. And every bundled
# checkpoint in equivalent forms (forms).

foreach(test attacks pairs campaign forms)
  add_test(NAME "attack: ${test}"
    COMMAND ${PREPACK_TEST_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/attack/${test}_test.py)
  set_tests_properties("attack: ${test}" PROPERTIES
    ENVIRONMENT "PREPACK_TOOL=$<TARGET_FILE:prepack>;PREPACK_SANITIZERS=${PREPACK_SANITIZE}" TIMEOUT 1500
    COST ${PREPACK_PYTHON_TEST_COST})
endforeach()
