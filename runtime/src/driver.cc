#include "driver.h"

#include "error.h"

namespace aotbuild {

Driver& Driver::of(int32_t device_type) {
  switch (device_type) {
    case kDeviceCuda:
      return cuda_driver();
    case kDeviceRocm:
      return hip_driver();
    default:
      throw Error(AOTBUILD_ERROR_INVALID_ARGUMENT,
                  "device type " + std::to_string(device_type) +
                      " is not a GPU that this library drives: expected 2 (CUDA) or 10 (ROCm)");
  }
}

}  // namespace aotbuild
