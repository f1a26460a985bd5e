if(PREPACK_SANITIZE)
  set(name "memory: left out, sanitizers have an operator new of their own")
  add_test(NAME "${name}" COMMAND ${CMAKE_COMMAND} -E false)
  set_tests_properties("${name}" PROPERTIES DISABLED ON)
  return()
endif()

# A program of its own: it replaces operator new. Its checkpoints are those of the benchmarks.
prepack_add_tests(memory
  conversion_memory_test.cpp
  counting_allocator.cpp
  many_modules_test.cpp
  out_of_memory_test.cpp
  ../../bench/sample_checkpoint.cpp
  ../../bench/sample_formats.cpp)
target_include_directories(test_memory PRIVATE ${PROJECT_SOURCE_DIR}/bench)
