# The examples as a project of their own, against an installed Atoll (docs/examples.md). Installed as
# the CMakeLists.txt of the documentation's folder, which has the parts of the tree that it names:
#   cmake -S /where/atoll/is/share/doc/atoll -B build -DCMAKE_PREFIX_PATH=/where/atoll/is
#   cmake --build build
cmake_minimum_required(VERSION 3.25)
project(atoll_examples LANGUAGES C CXX)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
include(cmake/compile_options.cmake)
include(cmake/embed_text.cmake)
find_package(Threads REQUIRED)
find_package(atoll 0.1 REQUIRED)
add_library(atoll ALIAS atoll::atoll)  # what it is called in its own tree
add_subdirectory(runtime/base)
add_subdirectory(examples)
