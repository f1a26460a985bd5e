# Where PREPACK_BUILT_IN names a build folder: its component `tool` is what is installed, and no program is built.
# So the wheel and the Debian package hold the program that was tested, and take no second build.

if(NOT EXISTS ${PREPACK_BUILT_IN}/bin/prepack)
  message(FATAL_ERROR "PREPACK_BUILT_IN: there is no bin/prepack in ${PREPACK_BUILT_IN}. Build it first: "
                      "cmake --build ${PREPACK_BUILT_IN}")
endif()
add_custom_target(prepack)
install(CODE "
  execute_process(
    COMMAND \"${CMAKE_COMMAND}\" --install \"${PREPACK_BUILT_IN}\" --component tool --strip
            --prefix \"\${CMAKE_INSTALL_PREFIX}\"
    COMMAND_ERROR_IS_FATAL ANY)"
  COMPONENT tool)
