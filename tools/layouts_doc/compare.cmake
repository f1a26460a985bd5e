# Fails unless the file FILE is what PROGRAM prints.
execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE printed RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} failed: ${result}")
endif()
file(READ ${FILE} stored)
if(NOT printed STREQUAL stored)
  message(FATAL_ERROR "${FILE} is out of date. Generate it again:\n  ${PROGRAM} > ${FILE}")
endif()
