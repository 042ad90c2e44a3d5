// Prints what the runtime finds: packs of the arches named, and what it says of both vendors' GPUs.
#include <aotbuild/aotbuild.h>

#include <cstdio>
#include <vector>

int main(int count, char** words) {
  aotbuild_library* library = nullptr;
  if (aotbuild_open(nullptr, &library) != AOTBUILD_OK) return 1;
  std::printf("aotbuild %s\n", aotbuild_version());
  std::vector<char> text(1 << 16);
  for (int i = 1; i < count; ++i) {
    size_t needed = 0;
    if (aotbuild_describe(library, words[i], text.data(), text.size(), &needed) != AOTBUILD_OK) {
      return 1;
    }
    std::printf("%s\n", text.data());
  }
  aotbuild_close(library);
  for (const int device_type : {2, 10}) {
    char arch[32] = "";
    const aotbuild_status status = aotbuild_device_arch(device_type, 0, arch, sizeof arch);
    std::printf("device type %d: %s %s %s\n", device_type, aotbuild_status_name(status), arch,
                status == AOTBUILD_OK ? "" : aotbuild_last_error());
  }
  return 0;
}
