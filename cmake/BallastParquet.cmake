# The library ballast_parquet, where there is Arrow. The core loads it at run time (src/format/parquet/load.cc).

# Names the headers that both must have been compiled with: a library of another build is refused.
set(interface "")
foreach(header include/ballast/error.h src/source/source.h src/format/parquet/parquet.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
  file(SHA256 ${PROJECT_SOURCE_DIR}/${header} hash)
  string(APPEND interface ${hash})
endforeach()
string(SHA256 interface "${interface}")
string(SUBSTRING ${interface} 0 12 interface)

# The version for which an error asks when the libraries of Arrow are missing: their names change with every major version.
find_package(BallastArrow 20)
set(pyarrow pyarrow)
if(BallastArrow_FOUND)
  string(REGEX REPLACE "[.].*" "" major ${BallastArrow_VERSION})
  set(pyarrow "pyarrow==${major}.*")
endif()
set_source_files_properties(src/format/parquet/load.cc src/format/parquet/library.cc PROPERTIES COMPILE_DEFINITIONS
  "BALLAST_PARQUET_INTERFACE=\"${PROJECT_VERSION}-${interface}\";BALLAST_LIBDIR=\"${CMAKE_INSTALL_LIBDIR}\";BALLAST_PYARROW=\"${pyarrow}\"")
if(NOT BallastArrow_FOUND)
  message(STATUS "Parquet will be missing: there is neither Arrow C++ nor pyarrow")
  return()
endif()

add_library(ballast_parquet MODULE
  src/format/parquet/arrow_error.cc
  src/format/parquet/leaves.cc
  src/format/parquet/library.cc
  src/format/parquet/reader.cc
  src/format/parquet/row_group.cc
  src/format/parquet/source_file.cc
  src/format/parquet/writer.cc
)
set_target_properties(ballast_parquet PROPERTIES
  CXX_EXTENSIONS OFF
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
  INSTALL_RPATH "$ORIGIN;${BallastArrow_RPATH}"
)
target_include_directories(ballast_parquet PRIVATE src)
target_link_libraries(ballast_parquet PRIVATE ballast BallastArrow::BallastArrow fmt::fmt)
ballast_compile_options(ballast_parquet)
