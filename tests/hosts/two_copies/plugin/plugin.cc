#include <aotbuild/aotbuild.hpp>
#include <string>

extern "C" __attribute__((visibility("default"))) const char* plugin_report(const char* arch) {
  static std::string text;
  text = std::string("aotbuild ") + aotbuild_version() + "\n" + aotbuild::Library().describe(arch);
  aotbuild_open(nullptr, nullptr);  // fails, for its message
  return text.c_str();
}
