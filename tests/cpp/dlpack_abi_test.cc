// Compares aotbuild_tensor with DLPack's own DLTensor, which callers cast to it. It only compiles.
#include <dlpack.h>

#include <cstddef>

#include "aotbuild/aotbuild.h"
#include "driver.h"

namespace aotbuild {

#define SAME_OFFSET(member)                                                                \
  static_assert(offsetof(aotbuild_tensor, member) == offsetof(DLTensor, member), #member); \
  static_assert(sizeof(aotbuild_tensor{}.member) == sizeof(DLTensor{}.member), #member);

static_assert(sizeof(aotbuild_tensor) == sizeof(DLTensor), "DLTensor");
SAME_OFFSET(data)
SAME_OFFSET(device)
SAME_OFFSET(device.device_type)
SAME_OFFSET(device.device_id)
SAME_OFFSET(ndim)
SAME_OFFSET(dtype)
SAME_OFFSET(dtype.code)
SAME_OFFSET(dtype.bits)
SAME_OFFSET(dtype.lanes)
SAME_OFFSET(shape)
SAME_OFFSET(strides)
SAME_OFFSET(byte_offset)

static_assert(kDeviceCuda == int{kDLCUDA}, "kDLCUDA");
static_assert(kDeviceRocm == int{kDLROCM}, "kDLROCM");

}  // namespace aotbuild
