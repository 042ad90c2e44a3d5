// SHA-256 (FIPS 180-4). Own code, so that libzstd stays the only dependency.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace aotbuild {

using Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  void update(const void* data, size_t size);
  Digest finish();  // ends the message; use the object once

 private:
  void compress(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_ = {};
  uint64_t size_ = 0;  // bytes of the message so far
};

Digest sha256(const void* data, size_t size);

// Lower-case hexadecimal text of `size` bytes.
std::string hex(const uint8_t* data, size_t size);

}  // namespace aotbuild
