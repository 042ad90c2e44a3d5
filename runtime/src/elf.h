// Whether a code object is what its pack says it is: machine and arch in its ELF header. A driver
// given a foreign code object may fail late and obscurely, so it never sees one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "pack_format.h"

namespace aotbuild {

// Throws PACK_CORRUPT when the bytes are no 64-bit little-endian ELF file, PACK_ARCH when they are
// for another machine or arch than `arch`. `context` begins the message: pack and image.
void check_elf(const uint8_t* data, size_t size, format::Vendor vendor, std::string_view arch,
               const std::string& context);

}  // namespace aotbuild
