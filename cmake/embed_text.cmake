# Makes OUTPUT, a header with the text of INPUT as a string_view NAME. Called with cmake -P.
file(READ ${INPUT} text)
if(text MATCHES "\\)embedded\"")
  message(FATAL_ERROR "${INPUT} contains )embedded\", which ends the string")
endif()
file(WRITE ${OUTPUT} "#pragma once\n#include <string_view>\n"
     "inline constexpr std::string_view ${NAME} = R\"embedded(${text})embedded\";\n")
