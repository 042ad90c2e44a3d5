# Install rules. Components: Runtime is what a program needs to run, Development what it takes to
# build one, Images the packs of AOTBUILD_TARGET_ARCH. The package is relocatable: nothing in it
# names the build or the prefix. With AOTBUILD_SONAME_SUFFIX it is a package of its own,
# `find_package(aotbuild<suffix>)`, which shares a prefix, its headers and its packs with others.
include(CMakePackageConfigHelpers)

if(AOTBUILD_WHEEL)
  # `lib` on every distribution, and one file named by its soname.
  set(CMAKE_INSTALL_LIBDIR lib)
  set(CMAKE_INSTALL_INCLUDEDIR include)
  set(aotbuild_namelink NAMELINK_SKIP)
  set(aotbuild_imagesdir lib/aotbuild.images)
  get_target_property(aotbuild_soversion aotbuild_runtime SOVERSION)
  set_target_properties(aotbuild_runtime PROPERTIES VERSION "${aotbuild_soversion}")
else()
  include(GNUInstallDirs)
  set(aotbuild_namelink NAMELINK_COMPONENT Development)
  set(aotbuild_imagesdir share/aotbuild/images) # where the library looks, whatever DATADIR is
endif()
set(aotbuild_package "aotbuild${AOTBUILD_SONAME_SUFFIX}")
set(aotbuild_cmakedir "${CMAKE_INSTALL_LIBDIR}/cmake/${aotbuild_package}")

set_target_properties(aotbuild_runtime PROPERTIES EXPORT_NAME runtime)
install(TARGETS aotbuild_runtime EXPORT aotbuildTargets
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT Runtime ${aotbuild_namelink}
        INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(FILES "${PROJECT_BINARY_DIR}/runtime/runtime.json"
        DESTINATION "share/${aotbuild_package}" COMPONENT Runtime)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/runtime/include/"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT Development)
install(EXPORT aotbuildTargets NAMESPACE ${aotbuild_package}::
        DESTINATION "${aotbuild_cmakedir}" COMPONENT Development)

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/aotbuildConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/cmake/${aotbuild_package}Config.cmake"
  INSTALL_DESTINATION "${aotbuild_cmakedir}"
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/cmake/${aotbuild_package}ConfigVersion.cmake"
  VERSION "${PROJECT_VERSION}" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/cmake/${aotbuild_package}Config.cmake"
              "${PROJECT_BINARY_DIR}/cmake/${aotbuild_package}ConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/AotbuildProvision.cmake"
              "${PROJECT_SOURCE_DIR}/images/index.json"
        DESTINATION "${aotbuild_cmakedir}" COMPONENT Development)

# A variable of CMake alone: what the environment says is for hosts.
if(AOTBUILD_TARGET_ARCH)
  include("${PROJECT_SOURCE_DIR}/cmake/AotbuildProvision.cmake")
  _aotbuild_install_own_images("${PROJECT_BINARY_DIR}/runtime/runtime.json" "${aotbuild_imagesdir}")
endif()
