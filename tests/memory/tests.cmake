if(PREPACK_SANITIZE)
  set(name "memory: left out, sanitizers have an operator new of their own")
  add_test(NAME "${name}" COMMAND ${CMAKE_COMMAND} -E false)
  set_tests_properties("${name}" PROPERTIES DISABLED ON)
  return()
endif()

# A program of its own: it replaces operator new. Its checkpoints are those of the benchmarks.
prepack_add_tests(memory
  ${PROJECT_SOURCE_DIR}/bench/sample_checkpoint.cpp
  ${PROJECT_SOURCE_DIR}/bench/sample_formats.cpp)
target_include_directories(test_memory PRIVATE ${PROJECT_SOURCE_DIR}/bench)
