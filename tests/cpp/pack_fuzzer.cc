// libFuzzer entry over the pack reader: built with clang and -DAOTBUILD_BUILD_FUZZER=ON. Start it
// on a folder of packs, such as tests/data.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pack_builder.h"
#include "pack_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  aotbuild::test::seal(bytes);  // else nearly all inputs end at the hash
  aotbuild::test::open_and_walk(bytes.data(), bytes.size());
  return 0;
}
