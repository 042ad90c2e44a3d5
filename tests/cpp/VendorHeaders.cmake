# aotbuild_find_vendor_header(NAME HEADER FOLDER): sets AOTBUILD_<NAME>_INCLUDE_DIR, unless it is
# set, to the folder that holds HEADER: FOLDER of a Python package, since the wheels of triton and
# torch carry what is needed.
function(aotbuild_find_vendor_header name header folder)
  string(TOUPPER "AOTBUILD_${name}_INCLUDE_DIR" variable)
  if(NOT ${variable})
    find_package(Python 3.10 QUIET COMPONENTS Interpreter)
    if(Python_FOUND)
      execute_process(
        COMMAND "${Python_EXECUTABLE}" -c
                "import sysconfig; print(sysconfig.get_path('platlib'))"
        OUTPUT_VARIABLE packages OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    endif()
    find_path(${variable} ${header} PATHS "${packages}/${folder}"
              DOC "Folder of ${header}, to test the runtime's declarations against")
  endif()
  if(NOT ${variable})
    message(FATAL_ERROR
      "${header} was not found, in ${packages}/${folder} or where compilers look. The ABI tests "
      "need it: set ${variable}, install the Python package that carries it (triton for CUDA and "
      "HIP, torch for DLPack), or leave those tests out by AOTBUILD_TEST_VENDOR_ABI=OFF.")
  endif()
endfunction()
