// What the runtime needs of a GPU driver. driver_cuda.cc and driver_hip.cc implement it over
// libcuda and libamdhip64, opened with dlopen at first use; nothing else knows a vendor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "aotbuild/aotbuild.h"
#include "pack.h"

namespace aotbuild {

inline constexpr int32_t kDeviceCuda = 2;   // DLPack's kDLCUDA
inline constexpr int32_t kDeviceRocm = 10;  // DLPack's kDLROCM

struct DeviceInfo {
  std::string arch;  // as packs name it: "sm_90", "gfx942" (features cut off)
  uint32_t multiprocessors = 0;
  uint32_t max_shared = 0;  // dynamic shared memory (LDS) a block can have, bytes
  bool cooperative = false;
};

// A loaded code object and its entry point.
struct Kernel {
  void* module = nullptr;
  void* function = nullptr;
};

struct LaunchConfig {
  uint32_t grid[3];     // blocks, num_ctas included
  uint32_t threads;     // x
  uint32_t shared;      // dynamic, bytes
  uint32_t cluster[3];  // 1, 1, 1 when there is none
  bool cooperative;
  bool programmatic;
};

class Driver {
 public:
  // The driver of a DLPack device type, opened on first use. Throws NO_DRIVER (with what dlopen
  // said and what to install), INVALID_ARGUMENT for another device type.
  static Driver& of(int32_t device_type);

  virtual ~Driver() = default;
  virtual DeviceInfo device(int32_t id) = 0;
  // Throws INVALID_ARGUMENT when the stream belongs to another device than `id`.
  virtual void check_stream(int32_t id, aotbuild_stream stream) = 0;
  // Loads a code object on device `id`, finds `symbol`, and makes `shared` bytes of dynamic
  // shared memory allowed. Throws DRIVER.
  virtual Kernel load(int32_t id, const void* code, size_t size, const std::string& symbol,
                      uint32_t shared) = 0;
  virtual void unload(int32_t id, Kernel kernel) noexcept = 0;
  // Encodes a tensor descriptor into `bytes` (128 bytes, 128-byte aligned); returns how many bytes
  // the kernel takes by value.
  virtual size_t encode(const format::Descriptor& descriptor, const aotbuild_tensor& tensor,
                        void* bytes) = 0;
  // Launches on the stream's device, leaving the thread's current device as it was.
  virtual void launch(int32_t id, aotbuild_stream stream, const Kernel& kernel,
                      const LaunchConfig& config, void** arguments) = 0;
};

// The two implementations, opened on first use; a failure is thrown every time until it heals.
Driver& cuda_driver();
Driver& hip_driver();

}  // namespace aotbuild
