# find_package(Atoll) gives the targets Atoll::atoll and Atoll::core.
include(${CMAKE_CURRENT_LIST_DIR}/AtollTargets.cmake)
