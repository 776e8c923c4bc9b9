# Run by cpack before it makes the Debian packages: puts their files where Debian wants them.

foreach(component package IN ZIP_LISTS CPACK_COMPONENTS_ALL CPACK_BALLAST_PACKAGES)
  set(share ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}/usr/share)
  set(doc ${share}/doc/${package})
  file(MAKE_DIRECTORY ${doc})
  file(COPY_FILE ${CPACK_BALLAST_SOURCE_DIR}/cmake/debian_copyright ${doc}/copyright)
  file(COPY_FILE ${CPACK_BALLAST_SOURCE_DIR}/CHANGELOG.md ${doc}/changelog)
  file(GLOB pages ${share}/man/man1/*.1)
  execute_process(COMMAND gzip -9nf ${doc}/changelog ${pages} COMMAND_ERROR_IS_FATAL ANY)
  if(EXISTS ${share}/zsh/site-functions)
    file(RENAME ${share}/zsh/site-functions ${share}/zsh/vendor-completions)
  endif()
endforeach()
