# Installs the public headers, and those that they include, as <prepack/base/status.h> and so on. In the
# sources they are "base/status.h": a folder `base` on a stranger's include path would meet others, so
# the copies get the prefix. Runs when installing, with
#
#   roots        where the headers lie
#   destination  the include folder
#   scratch      a folder for files on the way

cmake_policy(VERSION 3.25)

# Opening, describing, converting and judging checkpoints; the rest is how.
set(pending
  prepack/base/version.h
  prepack/check/check.h
  prepack/container/checkpoint.h
  prepack/convert/convert.h
  prepack/convert/merge.h
  prepack/diff/diff.h
  prepack/inspect/inspect.h
  prepack/packed/folder.h
  prepack/verify/verify.h)

string(RANDOM LENGTH 12 name)  # installations may run at the same time
set(staged ${scratch}/headers-${name})
set(seen "")
while(pending)
  list(POP_FRONT pending header)
  if(header IN_LIST seen)
    continue()
  endif()
  list(APPEND seen ${header})
  set(source "")
  foreach(root IN LISTS roots)
    if(EXISTS ${root}/${header})
      set(source ${root}/${header})
    endif()
  endforeach()
  if(NOT source)
    message(FATAL_ERROR "${header}: there is no such header of prepack. Correct the list in "
                        "packaging/install_headers.cmake, or the #include")
  endif()
  file(READ ${source} text)
  string(REGEX MATCHALL "#include \"[^\"]+\"" includes "${text}")
  list(TRANSFORM includes REPLACE "#include \"(.*)\"" "\\1")
  list(APPEND pending ${includes})
  file(WRITE ${staged}/${header} "${text}")
endwhile()

file(INSTALL ${staged}/prepack DESTINATION ${destination} MESSAGE_NEVER)
file(REMOVE_RECURSE ${staged})
list(LENGTH seen count)
message(STATUS "Installed: ${count} headers in ${destination}/prepack")
