// Touches all that a pack can be asked for. Whatever bytes a pack that opened holds, only
// aotbuild::Error may come out of this, which is swallowed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aotbuild::test {

// Opens the bytes, which must be aligned to 8, and walks the pack. Returns whether it opened.
bool open_and_walk(const uint8_t* data, size_t size);

}  // namespace aotbuild::test
