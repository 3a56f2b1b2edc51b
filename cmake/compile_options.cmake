# Flags that every target of this project gets, and the helpers that apply the stricter ones.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 99)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

# Files are named from this folder on, wherever it lies: what is built says nothing of the machine, and
# is not larger for a longer path.
add_compile_options(-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)

# Exactness depends on this one: a fused multiply-add rounds once where TensorFlow Lite rounds twice.
add_compile_options(-ffp-contract=off)
if(ATOLL_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # It cannot follow fences. Ours (driver/device/activity.cc) order words that are atomic by themselves.
    add_compile_options(-Wno-tsan)
  endif()
elseif(ATOLL_SANITIZE)
  set(sanitizers -fsanitize=address,undefined,float-cast-overflow -fno-sanitize=vptr)
  add_compile_options(${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(${sanitizers})
endif()
if(ATOLL_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# All of our own code.
set(untrue_warnings)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # What g++ 12 says of std::string's own code, when it has read the header before.
  set(untrue_warnings -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow
                      -Wno-stringop-overread)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND ATOLL_SANITIZE)
  # What sanitizers add hides from it that a value is only read where it was written.
  list(APPEND untrue_warnings -Wno-maybe-uninitialized)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # What only a file knows is known to its unity, too.
  list(APPEND untrue_warnings $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
elseif(CMAKE_UNITY_BUILD)
  # To clang files that are compiled as one shadow each other's constants.
  list(APPEND untrue_warnings $<$<COMPILE_LANGUAGE:CXX>:-Wno-shadow>)
endif()
function(atoll_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra $<$<COMPILE_LANGUAGE:CXX>:-Wshadow -Wconversion -Wno-sign-conversion> ${untrue_warnings})
  if(ATOLL_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
endfunction()

# Compilers spend most of their time on the templates and headers of libraries, which files share
# that are compiled as one. So g++ is given a dozen of a target at a time. clang is not, unless it is
# asked for its warnings alone: its builds show what a file forgot to include.
# -DCMAKE_UNITY_BUILD=OFF is for working on one file.
if(NOT DEFINED CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(CMAKE_UNITY_BUILD ON)
endif()
if(NOT DEFINED CMAKE_UNITY_BUILD_BATCH_SIZE)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)
endif()

# A library of ours: static, position independent, no exceptions, no RTTI. SMALL: what runs once per
# model or request rather than for every element, and is compiled for size; SMALLEST: even where that
# takes more instructions, if the compiler knows how. Sections of their own let the
# linker drop functions that nobody calls; tables for unwinding the stack have no use without
# exceptions (debuggers read their own). Without g++'s -fipa-sra, which gives each file variants of
# its own, what files have of the same templates is there once.
#   atoll_library(name [SMALL | SMALLEST] SOURCES a.cc b.cc LIBS other)
function(atoll_library name)
  cmake_parse_arguments(ARG "SMALL;SMALLEST" "" "SOURCES;LIBS" ${ARGN})
  set(size_option)
  if(ARG_SMALLEST AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 12)
    set(size_option -Oz)
  elseif(ARG_SMALL OR ARG_SMALLEST)
    set(size_option -Os)
  endif()
  add_library(${name} STATIC ${ARG_SOURCES})
  atoll_warnings(${name})
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-exceptions -fno-rtti>)
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_options(${name} PRIVATE
      -ffunction-sections -fdata-sections -fno-asynchronous-unwind-tables -fno-unwind-tables
      ${size_option}
      $<$<AND:$<BOOL:${size_option}>,$<CXX_COMPILER_ID:GNU>>:-fno-ipa-sra>)
  endif()
  target_link_libraries(${name} PUBLIC ${ARG_LIBS})
endfunction()

# The only place where instruction-set flags are named: each kernel file gets those of its ISA.
function(atoll_isa_source target source)
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${source})
    set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${ARGN}")
    target_sources(${target} PRIVATE ${source})
  endif()
endfunction()
