# Arrow C++ with Parquet, as the target BallastArrow::BallastArrow: an installed one, else what is inside the Python package
# pyarrow, in .venv or wherever python3 has it. BallastArrow_RPATH is where that one's libraries lie.

set(BallastArrow_RPATH "")
find_package(Arrow CONFIG QUIET)
find_package(Parquet CONFIG QUIET)
if(Arrow_FOUND AND Parquet_FOUND AND TARGET Arrow::arrow_shared AND TARGET Parquet::parquet_shared)
  set(arrow_place "${Arrow_DIR}")
  set(arrow_version ${Arrow_VERSION})
  set(arrow_libraries Parquet::parquet_shared Arrow::arrow_shared)
else()
  # A new pyarrow has its libraries under new names.
  if(EXISTS ${PROJECT_SOURCE_DIR}/.venv/scripts-requirements.txt.sha256)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS .venv/scripts-requirements.txt.sha256)
  endif()
  foreach(python ${PROJECT_SOURCE_DIR}/.venv/bin/python python3)
    execute_process(
      COMMAND ${python} -c "import pyarrow as p; print(p.__version__, p.get_include(), p.get_library_dirs()[0], sep=';', end='')"
      OUTPUT_VARIABLE pyarrow ERROR_QUIET RESULT_VARIABLE failed)
    if(failed)
      continue()
    endif()
    list(GET pyarrow 0 arrow_version)
    list(GET pyarrow 1 include_dir)
    list(GET pyarrow 2 arrow_place)
    file(GLOB arrow_libraries ${arrow_place}/libparquet.so.*[0-9] ${arrow_place}/libarrow.so.*[0-9])
    list(LENGTH arrow_libraries count)
    if(count EQUAL 2)
      set(BallastArrow_RPATH ${arrow_place})
      break()
    endif()
    unset(arrow_place)
  endforeach()
endif()

# Pyarrow's libraries may have been built with the C++ ABI of before C++11, which shows when something is linked.
if(BallastArrow_RPATH AND NOT BallastArrow_LINKS STREQUAL arrow_libraries)
  file(WRITE ${CMAKE_BINARY_DIR}/CMakeFiles/arrow_links.cc
    "#include <arrow/status.h>\nint main() { return arrow::Status::OK().ToString().empty(); }\n")
  try_compile(links ${CMAKE_BINARY_DIR}/CMakeFiles/arrow_links ${CMAKE_BINARY_DIR}/CMakeFiles/arrow_links.cc
    CMAKE_FLAGS -DINCLUDE_DIRECTORIES=${include_dir} LINK_LIBRARIES ${arrow_libraries} CXX_STANDARD 23)
  if(links)
    set(BallastArrow_LINKS "${arrow_libraries}" CACHE INTERNAL "")
  else()
    message(STATUS "${arrow_place}: made with another C++ ABI")
    unset(arrow_place)
  endif()
  unset(links CACHE)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(BallastArrow REQUIRED_VARS arrow_place VERSION_VAR arrow_version)
if(BallastArrow_FOUND AND NOT TARGET BallastArrow::BallastArrow)
  add_library(BallastArrow::BallastArrow INTERFACE IMPORTED)
  target_link_libraries(BallastArrow::BallastArrow INTERFACE ${arrow_libraries})
  if(BallastArrow_RPATH)
    target_include_directories(BallastArrow::BallastArrow INTERFACE ${include_dir})
  endif()
endif()
