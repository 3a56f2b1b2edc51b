# atoll_install_with_prefix(file destination) installs a text whose paths below /usr/local become
# those of the prefix, also with `cmake --install --prefix`: units of systemd must have whole paths.
function(atoll_install_with_prefix file destination)
  cmake_path(ABSOLUTE_PATH file OUTPUT_VARIABLE source)
  cmake_path(GET file FILENAME name)
  install(CODE "
    file(READ \"${source}\" text)
    string(REPLACE /usr/local/ \"\${CMAKE_INSTALL_PREFIX}/\" text \"\${text}\")
    file(WRITE \"${CMAKE_CURRENT_BINARY_DIR}/installed/${name}\" \"\${text}\")
    file(INSTALL \"${CMAKE_CURRENT_BINARY_DIR}/installed/${name}\"
         DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${destination}\")")
endfunction()
