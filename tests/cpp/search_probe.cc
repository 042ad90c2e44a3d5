// A module around search.cc, which search_test copies to where a library may be installed.
#include <string>

#include "search.h"

extern "C" __attribute__((visibility("default"))) const char* probe_search_path() {
  static std::string text;
  text.clear();
  for (const aotbuild::SearchEntry& entry : aotbuild::search_path(nullptr)) {
    text += entry.origin + "=" + entry.directory + "\n";
  }
  return text.c_str();
}
