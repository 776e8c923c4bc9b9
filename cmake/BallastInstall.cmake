# What `cmake --install` puts where: headers, library, program, man page, and the files by which CMake and pkg-config find them.

include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ballast)
get_target_property(library_type ballast TYPE)

install(TARGETS ballast EXPORT ballastTargets FILE_SET HEADERS)
install(EXPORT ballastTargets NAMESPACE ballast:: DESTINATION ${package_dir})

if(TARGET ballast_parquet)
  install(TARGETS ballast_parquet DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

# Who links a static library links what it uses, too; a shared one brings that along.
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

if(TARGET ballast_cli)
  if(NOT is_static)
    cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${CMAKE_INSTALL_FULL_BINDIR} OUTPUT_VARIABLE bin_to_lib)
    set_target_properties(ballast_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  endif()
  install(TARGETS ballast_cli)
endif()
if(EXISTS ${PROJECT_SOURCE_DIR}/docs/man/ballast.1)
  install(FILES docs/man/ballast.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()
