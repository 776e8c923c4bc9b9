# Compiles through ccache where it is installed. Paths below the source tree count as relative, so that every clone shares the cache.

find_program(BALLAST_CCACHE ccache DOC "ccache, or empty to compile without it")
if(PROJECT_IS_TOP_LEVEL AND BALLAST_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${BALLAST_CCACHE})
endif()
