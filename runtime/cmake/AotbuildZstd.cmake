# aotbuild_find_zstd(VARIABLE): finds libzstd by its CMake package, pkg-config or by looking for it,
# and sets VARIABLE to a target. Stops with one message when there is none.
function(aotbuild_find_zstd variable)
  if(AOTBUILD_STATIC_ZSTD)
    set(candidates zstd::libzstd_static)
  else()
    set(candidates zstd::libzstd_shared zstd::libzstd)
  endif()
  find_package(zstd CONFIG QUIET)
  foreach(candidate IN LISTS candidates)
    if(TARGET ${candidate})
      set(${variable} ${candidate} PARENT_SCOPE)
      return()
    endif()
  endforeach()

  find_package(PkgConfig QUIET)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(AOTBUILD_PC_ZSTD QUIET libzstd)
  endif()
  set(names zstd)
  if(AOTBUILD_STATIC_ZSTD)
    set(names "${CMAKE_STATIC_LIBRARY_PREFIX}zstd${CMAKE_STATIC_LIBRARY_SUFFIX}")
  endif()
  find_path(AOTBUILD_ZSTD_INCLUDE_DIR zstd.h HINTS ${AOTBUILD_PC_ZSTD_INCLUDE_DIRS})
  find_library(AOTBUILD_ZSTD_LIBRARY NAMES ${names} HINTS ${AOTBUILD_PC_ZSTD_LIBRARY_DIRS})
  if(NOT AOTBUILD_ZSTD_INCLUDE_DIR OR NOT AOTBUILD_ZSTD_LIBRARY)
    message(FATAL_ERROR
      "aotbuild needs libzstd with its header, to read packs. Looked for a CMake package 'zstd', "
      "pkg-config's 'libzstd', zstd.h (found: ${AOTBUILD_ZSTD_INCLUDE_DIR}) and the library "
      "'${names}' (found: ${AOTBUILD_ZSTD_LIBRARY}). Install libzstd-dev (Debian, Ubuntu) or "
      "libzstd-devel (Fedora), or add its prefix to CMAKE_PREFIX_PATH.")
  endif()
  add_library(aotbuild_zstd UNKNOWN IMPORTED)
  set_target_properties(aotbuild_zstd PROPERTIES
    IMPORTED_LOCATION "${AOTBUILD_ZSTD_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${AOTBUILD_ZSTD_INCLUDE_DIR}")
  set(${variable} aotbuild_zstd PARENT_SCOPE)
endfunction()
