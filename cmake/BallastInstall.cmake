# What `cmake --install` puts where, in components that become Debian packages: `program` (with man page, completion, and the
# library if it is shared) and `development` (headers, library, and the files by which CMake and pkg-config find them).

include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ballast)
get_target_property(library_type ballast TYPE)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)

install(TARGETS ballast EXPORT ballastTargets
  LIBRARY COMPONENT program NAMELINK_COMPONENT development
  FILE_SET HEADERS
)
install(EXPORT ballastTargets NAMESPACE ballast:: DESTINATION ${package_dir})

# Users of a static library link its dependencies too; a shared one names its own.
string(COMPARE EQUAL "${library_type}" STATIC_LIBRARY is_static)
configure_package_config_file(cmake/ballastConfig.cmake.in ${PROJECT_BINARY_DIR}/ballastConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ballastConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/ballastConfig.cmake ${PROJECT_BINARY_DIR}/ballastConfigVersion.cmake
  DESTINATION ${package_dir})

# Paths are relative to the .pc file, so that an install can be moved.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE pc_to_prefix)
cmake_path(APPEND pc_libdir "\${prefix}" ${CMAKE_INSTALL_LIBDIR})
cmake_path(APPEND pc_includedir "\${prefix}" ${CMAKE_INSTALL_INCLUDEDIR})
if(is_static)
  set(pc_private "")
else()
  set(pc_private ".private")
endif()
configure_file(cmake/ballast.pc.in ${PROJECT_BINARY_DIR}/ballast.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ballast.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(TARGET ballast_parquet)
  # No Debian package can depend on the Arrow inside pyarrow, so what uses that one stays out of the program's package.
  if(BallastArrow_RPATH)
    set(parquet_component parquet)
  else()
    set(parquet_component program)
  endif()
  install(TARGETS ballast_parquet DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${parquet_component})
endif()

if(TARGET ballast_cli)
  if(NOT is_static)
    cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_FULL_BINDIR} OUTPUT_VARIABLE bin_to_lib)
    set_target_properties(ballast_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  endif()
  install(TARGETS ballast_cli COMPONENT program)
  install(FILES docs/man/ballast.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
  install(FILES ${PROJECT_BINARY_DIR}/completion/ballast.bash
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ballast COMPONENT program)
  install(FILES ${PROJECT_BINARY_DIR}/completion/ballast.zsh
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _ballast COMPONENT program)
endif()
