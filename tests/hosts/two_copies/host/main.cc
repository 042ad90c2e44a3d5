// usage: host PLUGIN ARCH
//
// Prints what this program's copy of aotbuild and the plugin's see for an arch, and whether a
// failed call of one changes the last error of the other.
#include <dlfcn.h>

#include <aotbuild/aotbuild.hpp>
#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  void* const plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  using Report = const char* (*)(const char*);
  const auto report = reinterpret_cast<Report>(dlsym(plugin, "plugin_report"));
  if (report == nullptr) return 1;
  char small[1];
  aotbuild_device_arch(-1, 0, small, sizeof(small));
  const std::string mine = aotbuild_last_error();
  std::printf("host has aotbuild %s\n%s\n", aotbuild_version(),
              aotbuild::Library().describe(argv[2]).c_str());
  std::printf("plugin has %s\n", report(argv[2]));
  // The plugin's calls failed in another way.
  std::printf("last errors are %s\n", mine == aotbuild_last_error() ? "separate" : "shared");
}
