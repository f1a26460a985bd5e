# Links oneDNN itself, to hold our bytes against those of its reorders.
if(oneDNN_FOUND)
  # Apart from the tests: clang-tidy, which cannot read their precompiled header, is to see these files
  # as the library has them.
  add_library(linked_onednn OBJECT
    ${PROJECT_SOURCE_DIR}/libconvert/prepack/gemm/onednn/query.cpp)
  set_target_properties(linked_onednn PROPERTIES EXPORT_COMPILE_COMMANDS OFF)
  target_link_libraries(linked_onednn PUBLIC libprepack oneDNN::dnnl PRIVATE prepack_options)

  prepack_add_tests(onednn)
  target_link_libraries(test_onednn PRIVATE linked_onednn ${CMAKE_DL_LIBS})
else()
  message(STATUS "Built without oneDNN: our bytes are not compared with those of its reorders")
endif()
