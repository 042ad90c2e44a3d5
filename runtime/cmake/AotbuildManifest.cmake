# aotbuild_write_manifest(FILE TOOLKITS): writes the runtime's manifest, share/aotbuild/runtime.json
# of an installed prefix. What matches a prebuilt runtime with a machine reads it.
function(aotbuild_write_manifest file toolkits)
  set(runtime "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/..")
  set(pattern " = ([0-9]+); +// ([a-z_]+[.][a-z_]+)$")
  file(STRINGS "${runtime}/src/contracts.h" lines REGEX "${pattern}")
  set(contracts)
  foreach(line IN LISTS lines)
    string(REGEX REPLACE ".*${pattern}" "\"\\2\": \\1" contract "${line}")
    list(APPEND contracts "${contract}")
  endforeach()
  if(NOT contracts)
    message(FATAL_ERROR "${runtime}/src/contracts.h: no line as '${pattern}'")
  endif()
  list(TRANSFORM toolkits REPLACE "(.+)" "\"\\1\"")
  list(JOIN contracts ", " contracts)
  list(JOIN toolkits ", " toolkits)
  string(TOLOWER "${CMAKE_SYSTEM_PROCESSOR}" cpu)
  string(REGEX REPLACE "^amd64$" "x86_64" cpu "${cpu}")
  string(REGEX REPLACE "^arm64$" "aarch64" cpu "${cpu}")
  file(CONFIGURE OUTPUT "${file}" CONTENT "{
 \"version\": \"${PROJECT_VERSION}\",
 \"abi\": ${AOTBUILD_ABI_VERSION},
 \"cpu\": \"${cpu}\",
 \"toolkits\": [${toolkits}],
 \"contracts\": {${contracts}}
}
" @ONLY)
endfunction()
