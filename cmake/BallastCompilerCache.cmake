# Compiles through ccache where it is installed. Paths below the source tree count as relative, so that every clone shares the cache;
# so do those that __FILE__ leaves in the code. Precompiled headers are cached, which ccache wants to be told.

find_program(BALLAST_CCACHE ccache DOC "ccache, or empty to compile without it")
if(PROJECT_IS_TOP_LEVEL AND BALLAST_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros ${BALLAST_CCACHE})
  add_compile_options(-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess> "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endif()
