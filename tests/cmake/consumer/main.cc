// usage: consumer [ARCH]
// Prints the library's version, ABI and search path, and the packs found for an arch.
#include <aotbuild/aotbuild.h>

#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  aotbuild_library* library = nullptr;
  if (aotbuild_open(nullptr, &library) != AOTBUILD_OK) {
    std::fprintf(stderr, "%s\n", aotbuild_last_error());
    return 1;
  }
  std::vector<char> text(1 << 16);
  size_t needed = 0;
  const aotbuild_status status =
      aotbuild_describe(library, argc > 1 ? argv[1] : nullptr, text.data(), text.size(), &needed);
  aotbuild_close(library);
  if (status != AOTBUILD_OK) {
    std::fprintf(stderr, "%s\n", aotbuild_last_error());
    return 1;
  }
  std::printf("aotbuild %s, ABI %d of %d\n%s\n", aotbuild_version(), aotbuild_abi_version(),
              AOTBUILD_ABI_VERSION, text.data());
  return aotbuild_abi_version() == AOTBUILD_ABI_VERSION ? 0 : 1;
}
