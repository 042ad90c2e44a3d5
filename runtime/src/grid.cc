// Grid of a launch.
#include <algorithm>
#include <array>
#include <string_view>

#include "dispatch.h"
#include "error.h"
#include "text.h"

namespace aotbuild {
namespace {

// ceil(source / divisor) of one factor.
uint64_t blocks_of(const Pack& pack, const format::Factor& factor, const Call& call) {
  const std::string_view name = pack.string(factor.source_name);
  const int64_t size = call.integer(factor.source_kind, name, factor.source_dim);
  if (size < 0) {
    throw Error(AOTBUILD_ERROR_INVALID_ARGUMENT,
                quoted(name) + " is " + std::to_string(size) +
                    ", expected 0 or more: the grid is made of it");
  }
  const auto whole = static_cast<uint64_t>(size);
  return whole / factor.divisor + (whole % factor.divisor != 0 ? 1 : 0);
}

[[noreturn]] void fail_grid(const Pack& pack, const format::Image& image, uint64_t seen, char axis,
                            uint64_t limit) {
  throw Error(AOTBUILD_ERROR_INVALID_ARGUMENT,
              "grid." + std::string(1, axis) + " of image " + quoted(pack.string(image.name)) +
                  " is " + (seen == UINT64_MAX ? "over 2^64" : std::to_string(seen)) +
                  ", expected below " + std::to_string(limit) + ": the call's sizes are too large");
}

}  // namespace

Grid grid_of(const Pack& pack, const format::Image& image, const Call& call,
             uint32_t multiprocessors) {
  std::array<uint64_t, 3> size = {1, 1, 1};
  bool empty = false;
  for (const format::Factor& factor : pack.factors(image)) {
    const uint64_t blocks = blocks_of(pack, factor, call);
    empty = empty || blocks == 0;
    if (__builtin_mul_overflow(size[factor.axis], blocks, &size[factor.axis])) {
      size[factor.axis] = UINT64_MAX;
    }
  }
  if (empty) {  // whatever the other axes are
    return {0, 0, 0};
  }
  if (image.grid_cap != 0) {
    if (multiprocessors == 0) {
      throw Error(AOTBUILD_ERROR_INTERNAL, "image " + quoted(pack.string(image.name)) +
                                               " caps its grid by multiprocessors, which are 0");
    }
    size[0] = std::min(size[0], uint64_t{image.grid_cap} * multiprocessors);
  }
  constexpr uint64_t kLimitX = 1ULL << 31;
  constexpr uint64_t kLimitYZ = 1ULL << 16;
  // The launch multiplies x by num_ctas.
  if (size[0] >= kLimitX || size[0] * image.num_ctas >= kLimitX) {
    fail_grid(pack, image, size[0], 'x', kLimitX / image.num_ctas);
  }
  if (size[1] >= kLimitYZ) {
    fail_grid(pack, image, size[1], 'y', kLimitYZ);
  }
  if (size[2] >= kLimitYZ) {
    fail_grid(pack, image, size[2], 'z', kLimitYZ);
  }
  return {static_cast<uint32_t>(size[0]), static_cast<uint32_t>(size[1]),
          static_cast<uint32_t>(size[2])};
}

}  // namespace aotbuild
