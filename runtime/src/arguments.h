// The argument array of one launch, in the order of the image's own parameters.
#pragma once

#include <cstddef>
#include <cstdint>

#include "call.h"
#include "driver.h"
#include "pack.h"

namespace aotbuild {

// Where the launch's scratch memory lies; 0 when the image needs none.
struct Scratch {
  uint64_t global = 0;
  uint64_t profile = 0;
};

// Lives on the stack: a launch allocates nothing. Parameters of a kernel take at most 4 KiB (CUDA
// before 12.1), which these limits match.
class Arguments {
 public:
  static constexpr size_t kMaxArguments = 256;
  static constexpr size_t kMaxDescriptors = 16;

  // Throws INVALID_ARGUMENT when a value does not fit the kernel's type, CONTRACT when the call
  // lacks one, UNSUPPORTED beyond the limits above, DRIVER when a descriptor is refused.
  Arguments(const Pack& pack, const format::Image& image, const Call& call, const Scratch& scratch,
            Driver& driver);
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;

  void** data() { return pointers_; }

 private:
  static constexpr size_t kDescriptorBytes = 128;

  void* add_descriptor(const Pack& pack, const format::Argument& argument, const Call& call,
                       Driver& driver);

  alignas(128) unsigned char descriptors_[kMaxDescriptors][kDescriptorBytes];
  size_t descriptor_count_ = 0;
  uint64_t scalars_[kMaxArguments];
  void* pointers_[kMaxArguments];
};

// `value` rounded to nearest even as a float with these exponent and mantissa bits; infinity when
// it is too large.
uint16_t round_to_small_float(double value, int exponent_bits, int mantissa_bits);

}  // namespace aotbuild
