# cmake -DFILE=<csv> -DARCHES=<list> -P arch_words.cmake: the verdict on each word of the table, a
# line each: word|arch|reason.
cmake_minimum_required(VERSION 3.21...4.0)
include("${CMAKE_CURRENT_LIST_DIR}/../../cmake/AotbuildProvision.cmake")

set(index_ARCHES ${ARCHES})
file(STRINGS "${FILE}" rows ENCODING UTF-8)
list(POP_FRONT rows)
foreach(row IN LISTS rows)
  string(REGEX REPLACE ",.*" "" word "${row}")
  _aotbuild_parse_arch(arch why "${word}")
  message("${word}|${arch}|${why}")
endforeach()
