# atoll_absent(text) says that a part is left out, as what it needs is not installed. Continuous
# integration wants every part: the test lint/parts (tests/CMakeLists.txt) lists what was left out.
function(atoll_absent text)
  message(STATUS "${text}")
  set_property(GLOBAL APPEND PROPERTY ATOLL_ABSENT "${text}")
endfunction()
