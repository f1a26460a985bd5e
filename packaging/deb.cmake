# Debian packages: `cpack` in a build folder writes prepack (the program) and libprepack-dev (the library).
# The program's dependencies are those that dpkg-shlibdeps finds. A release has the portable program in it
# (PREPACK_BUILT_IN), with oneDNN linked in; elsewhere the module looks for oneDNN beside itself
# (docs/dependencies.md).

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME prepack)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # else it stands before each description below
set(CPACK_PACKAGE_VENDOR "prepack developers")
set(CPACK_PACKAGE_CONTACT "prepack developers <prepack@packages.invalid>")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian_files.cmake)
set(CPACK_POST_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian_repack.cmake)
set(CPACK_PREPACK_DEBIAN_FOLDER ${CMAKE_CURRENT_LIST_DIR}/debian)
set(CPACK_PREPACK_DEBIAN_CHANGELOG ${PROJECT_BINARY_DIR}/debian-changelog)
configure_file(${CMAKE_CURRENT_LIST_DIR}/debian/changelog.in ${CPACK_PREPACK_DEBIAN_CHANGELOG} @ONLY)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL tool development)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
if(PREPACK_ARM)  # also if this machine is of another kind
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
endif()

set(CPACK_DEBIAN_TOOL_PACKAGE_NAME prepack)
set(CPACK_DEBIAN_TOOL_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOL_PACKAGE_SHLIBDEPS ON)
if(oneDNN_LIBRARY)
  cmake_path(GET oneDNN_LIBRARY PARENT_PATH CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS)
endif()
set(CPACK_COMPONENT_TOOL_DESCRIPTION "repack quantized LLM checkpoints for CPU kernels
prepack reads checkpoints of compressed-tensors, GPTQ, AWQ, AutoRound and
FP8, MXFP4 and NVFP4 (also ModelOpt's and Quark's), writes them in the
bytes that kernels of vLLM, zentorch and oneDNN read, and proves that the
weights are still those of the model.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libprepack-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
  "nlohmann-json3-dev (>= 3.11), libfmt-dev, libxxhash-dev, libpcre2-dev")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "library of prepack, for programs in C++
Opens packed folders and quantized checkpoints, converts and verifies them.
A static library with a CMake package and a pkg-config file.")

include(CPack)
