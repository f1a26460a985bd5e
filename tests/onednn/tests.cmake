# Links oneDNN itself, to hold our bytes against those of its reorders.
if(oneDNN_FOUND)
  prepack_add_tests(onednn onednn_layouts_test.cpp)
  target_sources(test_onednn PRIVATE
    ${PROJECT_SOURCE_DIR}/libconvert/gemm/onednn_query.cpp
    ${PROJECT_SOURCE_DIR}/libconvert/gemm/onednn_runtime.cpp)
  target_link_libraries(test_onednn PRIVATE oneDNN::dnnl ${CMAKE_DL_LIBS})
else()
  message(STATUS "Built without oneDNN: our bytes are not compared with those of its reorders")
endif()
