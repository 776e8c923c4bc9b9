# The Debian packages that cpack writes into packages/ of the build tree: `ballast`, the program, and `libballast-dev`.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_CONTACT "The Ballast authors" CACHE STRING "Maintainer of the Debian packages: Name <address>")

set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")  # each package has a description of its own, whose first line is the summary
set(CPACK_COMPONENTS_ALL program development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME ballast)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS libcurl4)  # loaded for models on servers
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "tool for model weights
Opens, checks, compares, converts, quantizes and downloads the weights of
machine-learning models: SafeTensors, MLX JSON, and models quantized to
2 to 8 bits, from files or from HTTP, S3 and Hugging Face Hub servers.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libballast-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "library for model weights, development files
Headers, library, CMake package and pkg-config file of the C++23 library
that the program ballast is made of.")
if(is_static)
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "libfmt-dev, libhwy-dev, libpugixml-dev, libre2-dev, libsimdjson-dev, libssl-dev, libyaml-cpp-dev, pkg-config")
else()
  set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "ballast (= ${PROJECT_VERSION})")
endif()

set(CPACK_BALLAST_PACKAGES ballast libballast-dev)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian_files.cmake)
set(CPACK_BALLAST_SOURCE_DIR ${PROJECT_SOURCE_DIR})
include(CPack)
