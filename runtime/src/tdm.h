// The tensor descriptor of gfx1250's tensor data mover, as Triton 3.9 kernels take it by value.
#pragma once

#include <cstddef>

#include "aotbuild/aotbuild.h"
#include "pack_format.h"

namespace aotbuild {

// Writes at most 80 bytes and returns how many the kernel takes: 48 up to rank 2, else 80.
// Throws UNSUPPORTED for a size beyond 32 bits or a stride beyond 48.
size_t encode_tdm(const format::Descriptor& descriptor, const aotbuild_tensor& tensor, void* bytes);

}  // namespace aotbuild
