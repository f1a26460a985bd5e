# The component `tool`.

install(TARGETS prepack COMPONENT tool)
install(FILES ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tool)
# Under the name that Debian looks for.
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE RENAME copyright
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tool)
# The licences of what a portable build links in (packaging/portable/build).
if(PREPACK_THIRD_PARTY)
  # The portable program. What it defines must not be compiled to a call of itself.
  target_sources(prepack PRIVATE ${CMAKE_CURRENT_LIST_DIR}/portable/memcmp.cpp)
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/portable/memcmp.cpp TARGET_DIRECTORY prepack PROPERTIES
    COMPILE_OPTIONS -fno-builtin SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
  install(FILES ${PREPACK_THIRD_PARTY} RENAME third-party DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT tool)
endif()
install(FILES ${PREPACK_CLI_DOCS_DIR}/bash/prepack
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT tool)
install(FILES ${PREPACK_CLI_DOCS_DIR}/zsh/_prepack
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT tool)
install(FILES ${PREPACK_CLI_DOCS_DIR}/fish/prepack.fish
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT tool)
install(DIRECTORY ${PREPACK_CLI_DOCS_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tool)
if(TARGET prepack_onednn)
  install(TARGETS prepack_onednn LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/prepack COMPONENT tool)
  if(oneDNN_LIBRARY)
    cmake_path(GET oneDNN_LIBRARY PARENT_PATH onednn_folder)
    install(CODE "
      set(link \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/prepack/onednn\")
      message(STATUS \"Linking: \${link} -> ${onednn_folder}\")
      file(CREATE_LINK \"${onednn_folder}\" \"\${link}\" SYMBOLIC)"
      COMPONENT onednn_link)
  endif()
endif()
