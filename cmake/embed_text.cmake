# Text files as C++ strings. Included, this file defines
#   atoll_embed_text(header kName file [kName file ...])
# which makes `header`, in the build tree, with the text of each file as a string_view. List the
# header among the sources of the target that includes it. Run by cmake -P, it writes the header.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  function(atoll_embed_text header)
    set(files ${ARGN})
    list(FILTER files EXCLUDE REGEX "^k[A-Z][A-Za-z]*$")
    add_custom_command(
      OUTPUT ${header}
      COMMAND ${CMAKE_COMMAND} -DOUTPUT=${header} "-DTEXTS=${ARGN}" -P ${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake
      WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
      DEPENDS ${files} ${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake
      VERBATIM)
  endfunction()
  return()
endif()

set(content "#pragma once\n#include <string_view>\n")
while(TEXTS)
  list(POP_FRONT TEXTS name file)
  file(READ ${file} text)
  if(text MATCHES "\\)embedded\"")
    message(FATAL_ERROR "${file} contains )embedded\", which ends the string")
  endif()
  string(APPEND content "inline constexpr std::string_view ${name} = R\"embedded(${text})embedded\";\n")
endwhile()
file(WRITE ${OUTPUT} "${content}")
