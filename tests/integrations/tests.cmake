# What stands in integrations/ and examples/, from the outside, with the harness of the command line.

# prepack_add_integration_test(NAME FILE [ARGUMENT...]): tests/integrations/FILE_test.py
function(prepack_add_integration_test name file)
  add_test(NAME "${name}"
    COMMAND ${PREPACK_TEST_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/integrations/${file}_test.py ${ARGN})
  set(environment
    "PREPACK_TOOL=$<TARGET_FILE:prepack>"
    "PREPACK_SANITIZERS=${PREPACK_SANITIZE}"
    "PYTHONPATH=${CMAKE_CURRENT_SOURCE_DIR}/cli:${PROJECT_SOURCE_DIR}/integrations/python/src")
  if(TARGET onednn_consumer)
    list(APPEND environment
      "PREPACK_CONSUMER=$<TARGET_FILE:onednn_consumer>"
      "LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_SOURCE_DIR}/integrations/onednn_leaks.supp:print_suppressions=0")
  endif()
  set_tests_properties("${name}" PROPERTIES ENVIRONMENT "${environment}" TIMEOUT 900
    COST ${PREPACK_PYTHON_TEST_COST})
endfunction()

prepack_add_integration_test("integrations: python package" python_package)
prepack_add_integration_test("integrations: python functions" python_api)
prepack_add_integration_test("integrations: python arrays" python_arrays)
prepack_add_integration_test("integrations: python at hand" python_at_hand)
prepack_add_integration_test("integrations: models elsewhere" remote)
foreach(case Jobs Faults S3)
  prepack_add_integration_test("integrations: parts in an object store, ${case}" store ${case})
endforeach()
prepack_add_integration_test("integrations: recording activations" vllm_record)
if(TARGET onednn_consumer)
  foreach(case W4A16 W4A8 W8A8Dynamic W8A8Static Refusals Sources)
    prepack_add_integration_test("integrations: onednn_consumer ${case}" onednn_consumer ${case})
  endforeach()
endif()
