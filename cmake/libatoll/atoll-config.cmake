# find_package(atoll) gives the libraries of this installation:
#   atoll::atoll  atoll::atoll_static    with devices on USB
#   atoll::core   atoll::core_static     the CPU, the compiler and the emulated device
# The static ones need a project with the language CXX, and that with USB libusb-1.0's own file.
# With COMPONENTS camera there is
#   atoll::camera                        pictures, what models see in them, and streams of them
# too, a static library in C++20 that needs libjpeg, libpng, zlib and, if it was there when this was
# built, OpenSSL.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/atoll-targets.cmake)
foreach(component IN LISTS atoll_FIND_COMPONENTS)
  if(component STREQUAL "camera" AND EXISTS ${CMAKE_CURRENT_LIST_DIR}/atoll-camera-targets.cmake)
    find_dependency(JPEG)
    find_dependency(PNG)
    find_dependency(ZLIB)
    file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/atoll-camera-targets.cmake atoll_tls REGEX OpenSSL::)
    if(atoll_tls)
      find_dependency(OpenSSL)
    endif()
    include(${CMAKE_CURRENT_LIST_DIR}/atoll-camera-targets.cmake)
    set(atoll_camera_FOUND TRUE)
  elseif(atoll_FIND_REQUIRED_${component})
    set(atoll_FOUND FALSE)
    set(atoll_NOT_FOUND_MESSAGE "This Atoll has no component ${component}; it may have camera.")
  endif()
endforeach()
