# One helper per kind of target.

function(ballast_compile_options target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor -Woverloaded-virtual $<$<BOOL:${BALLAST_WERROR}>:-Werror>
    # The same bytes on every machine: no fused multiply-add unless the code says so.
    -ffp-contract=off
  )
  # g++ 12 reports missing initializers in C++20 designated lists, where the defaults are meant.
  target_compile_options(${target} PRIVATE -Wno-missing-field-initializers)
  # What g++ does not count as a conversion.
  target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>)
endfunction()

# With CMAKE_UNITY_BUILD, compiles the sources of each folder as one: reading headers is most of the work. What Highway compiles
# once for each instruction set includes itself and stays apart. Call it after the last target_sources().
function(ballast_unity_by_folder target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source NORMALIZE OUTPUT_VARIABLE path)
    file(STRINGS ${path} per_target REGEX "foreach_target\\.h")
    if(per_target)
      continue()
    endif()
    cmake_path(GET path PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(REPLACE "/" "_" group ${folder})
    set_source_files_properties(${source} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${group})
  endforeach()
endfunction()

# For code whose own speed does not count: it builds in half the time.
function(ballast_build_fast target)
  target_compile_options(${target} PRIVATE $<IF:$<CONFIG:Release>,-O1,-O0>)
endfunction()

# A test program of GoogleTest cases that may look inside the library.
function(ballast_test name)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ballast fmt::fmt simdjson::simdjson GTest::gtest_main GTest::gmock)
  ballast_compile_options(${name})
  ballast_build_fast(${name})
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)
endfunction()

# A program for tests, benchmarks or examples.
function(ballast_program name)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ballast fmt::fmt)
  ballast_compile_options(${name})
endfunction()
