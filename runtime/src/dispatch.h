// From a call to an image: the pack's dispatch table, then the image's promises. Plain CPU code.
#pragma once

#include <cstdint>
#include <string>

#include "call.h"
#include "pack.h"

namespace aotbuild {

struct Grid {
  uint32_t x, y, z;  // programs, before multiplication by num_ctas
  bool empty() const { return x == 0 || y == 0 || z == 0; }
};

// First row that serves the call and whose image's promises hold, or null. On null, `*why` is
// extended with what was asked ("dtype=fp16 head_dim=72 ...") and why rows failed: which
// column had no value that serves, or which promise did not hold. Throws UNSUPPORTED with the
// row's reason when the row is a known failure.
const format::Image* dispatch(const Pack& pack, const format::Operator& op, const Call& call,
                              std::string* why);

// Whether the promises of an image hold; on false `*why` (may be null) says which does not.
bool promises_hold(const Pack& pack, const format::Image& image, const Call& call,
                   std::string* why);

// Grid of an image for a call; `multiprocessors` is used by grid_cap. Throws INVALID_ARGUMENT
// when a dimension does not fit in the limits (x < 2^31, y and z < 65536).
Grid grid_of(const Pack& pack, const format::Image& image, const Call& call,
             uint32_t multiprocessors);

}  // namespace aotbuild
