# Install rules. Components: Runtime is what a program needs to run, Development what it takes to
# build one. The package is relocatable: nothing in it names the build or the prefix.
include(CMakePackageConfigHelpers)

if(AOTBUILD_WHEEL)
  # `lib` on every distribution, and one file named by its soname.
  set(CMAKE_INSTALL_LIBDIR lib)
  set(CMAKE_INSTALL_INCLUDEDIR include)
  set(aotbuild_namelink NAMELINK_SKIP)
  get_target_property(aotbuild_soversion aotbuild_runtime SOVERSION)
  set_target_properties(aotbuild_runtime PROPERTIES VERSION "${aotbuild_soversion}")
else()
  include(GNUInstallDirs)
  set(aotbuild_namelink NAMELINK_COMPONENT Development)
endif()
set(aotbuild_cmakedir "${CMAKE_INSTALL_LIBDIR}/cmake/aotbuild")

set_target_properties(aotbuild_runtime PROPERTIES EXPORT_NAME runtime)
install(TARGETS aotbuild_runtime EXPORT aotbuildTargets
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT Runtime ${aotbuild_namelink}
        INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/runtime/include/"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT Development)
install(EXPORT aotbuildTargets NAMESPACE aotbuild::
        DESTINATION "${aotbuild_cmakedir}" COMPONENT Development)

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/aotbuildConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/cmake/aotbuildConfig.cmake"
  INSTALL_DESTINATION "${aotbuild_cmakedir}"
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/cmake/aotbuildConfigVersion.cmake"
  VERSION "${PROJECT_VERSION}" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/cmake/aotbuildConfig.cmake"
              "${PROJECT_BINARY_DIR}/cmake/aotbuildConfigVersion.cmake"
        DESTINATION "${aotbuild_cmakedir}" COMPONENT Development)
