# Comparison of the runtime's declarations (cuda_abi.h, hip_abi.h) with the headers of toolkits. It
# only compiles: a wrong declaration is a static_assert that names the vendor's symbol.

# aotbuild_compare_toolkits(VARIABLE): one comparison for each folder of AOTBUILD_CUDA_INCLUDE_DIRS
# and AOTBUILD_HIP_INCLUDE_DIRS, as a part of the default build; sets VARIABLE to the names of the
# toolkits: "cuda-13", "rocm-6.4".
function(aotbuild_compare_toolkits variable)
  set(toolkits)
  foreach(vendor IN ITEMS cuda hip)
    string(TOUPPER "AOTBUILD_${vendor}_INCLUDE_DIRS" setting)
    foreach(folder IN LISTS ${setting})
      aotbuild_toolkit_of_headers(toolkit ${vendor} "${folder}")
      if(toolkit IN_LIST toolkits)
        message(FATAL_ERROR "${setting}: ${folder} is a second ${toolkit}; name one folder of each")
      endif()
      aotbuild_compare_abi(aotbuild_compare_${toolkit} ${vendor} "${folder}")
      list(APPEND toolkits ${toolkit})
    endforeach()
  endforeach()
  set(${variable} "${toolkits}" PARENT_SCOPE)
endfunction()

# aotbuild_compare_abi(TARGET VENDOR FOLDER): an object library that compiles only if the ABI that
# the runtime declares is the one of the headers in FOLDER.
function(aotbuild_compare_abi target vendor folder)
  set(runtime "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/..")
  add_library(${target} OBJECT "${runtime}/abi/${vendor}_abi_check.cc")
  target_include_directories(${target} PRIVATE "${runtime}/include" "${runtime}/src")
  target_include_directories(${target} SYSTEM PRIVATE "${folder}")
  target_compile_definitions(${target} PRIVATE $<$<STREQUAL:${vendor},hip>:__HIP_PLATFORM_AMD__>)
  target_link_libraries(${target} PRIVATE aotbuild_flags)
endfunction()

# Name of the toolkit that the headers in a folder belong to.
function(aotbuild_toolkit_of_headers variable vendor folder)
  if(vendor STREQUAL "cuda")
    set(header "${folder}/cuda.h")
    set(pattern "#define CUDA_VERSION +([0-9]+)")
  else()
    set(header "${folder}/hip/hip_version.h")
    set(pattern "#define HIP_VERSION_(MAJOR|MINOR) +([0-9]+)")
  endif()
  if(NOT EXISTS "${header}")
    message(FATAL_ERROR "${header} does not exist; expected in a folder of the toolkit's headers")
  endif()
  file(STRINGS "${header}" lines REGEX "${pattern}")
  if(vendor STREQUAL "cuda" AND lines MATCHES "${pattern}")
    math(EXPR major "${CMAKE_MATCH_1} / 1000")
    set(${variable} "cuda-${major}" PARENT_SCOPE)
  elseif(vendor STREQUAL "hip" AND lines MATCHES "MAJOR +([0-9]+).*MINOR +([0-9]+)")
    set(${variable} "rocm-${CMAKE_MATCH_1}.${CMAKE_MATCH_2}" PARENT_SCOPE)
  else()
    message(FATAL_ERROR "${header} does not say its version; expected lines as '${pattern}'")
  endif()
endfunction()
