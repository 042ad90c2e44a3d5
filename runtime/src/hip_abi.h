// The part of HIP's ABI that the runtime uses, the same from ROCm 5 to 7, so that no vendor
// header is needed to build it. abi/hip_abi_check.cc compares it with the real headers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aotbuild::hip {

using Error = int;
using Stream = struct StreamRecord*;
using Module = struct ModuleRecord*;
using Function = struct FunctionRecord*;

inline constexpr Error kSuccess = 0;

enum DeviceAttribute : int {
  kCooperativeLaunch = 10,
  kMultiprocessorCount = 63,
  kMaxSharedPerBlock = 74,
};

// hipDeviceProp_t grew in ROCm 6, which exports the larger one under another name. Only the arch
// name is read; the buffer leaves room for what either version, or a later one, writes.
inline constexpr size_t kPropertiesBytes = 8192;
inline constexpr size_t kArchNameBytes = 256;
inline constexpr size_t kArchNameOffset = 396;        // hipGetDeviceProperties
inline constexpr size_t kArchNameOffsetR0600 = 1160;  // hipGetDevicePropertiesR0600

enum CaptureMode : int { kCaptureRelaxed = 2 };

enum LaunchAttributeId : int {
  kAttributeCooperative = 2,
  kAttributeClusterDimension = 4,
};

union alignas(8) LaunchAttributeValue {
  char pad[64];
  int cooperative;
  struct {
    unsigned x, y, z;
  } cluster;
};

struct LaunchAttribute {
  int id;  // LaunchAttributeId
  char pad[4];
  LaunchAttributeValue value;
};

struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

// X(name, exported symbol, result, parameters). Every version has these.
#define AOTBUILD_HIP_FUNCTIONS(X)                                                                \
  X(get_error_name, hipGetErrorName, const char*, (Error error))                                 \
  X(get_error_string, hipGetErrorString, const char*, (Error error))                             \
  X(get_last_error, hipGetLastError, Error, ())                                                  \
  X(get_device_count, hipGetDeviceCount, Error, (int* count))                                    \
  X(get_device, hipGetDevice, Error, (int* device))                                              \
  X(set_device, hipSetDevice, Error, (int device))                                               \
  X(device_get_attribute, hipDeviceGetAttribute, Error, (int* value, int attribute, int device)) \
  X(module_load_data, hipModuleLoadData, Error, (Module * module, const void* code))             \
  X(module_unload, hipModuleUnload, Error, (Module module))                                      \
  X(module_get_function, hipModuleGetFunction, Error,                                            \
    (Function * function, Module module, const char* name))                                      \
  X(module_launch_kernel, hipModuleLaunchKernel, Error,                                          \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,     \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** arguments, \
     void** extra))

// Null where a version lacks them: the first since ROCm 6, the second up to ROCm 7 at least.
#define AOTBUILD_HIP_PROPERTIES(X)                                   \
  X(get_device_properties_r0600, hipGetDevicePropertiesR0600, Error, \
    (void* properties, int device))                                  \
  X(get_device_properties, hipGetDeviceProperties, Error, (void* properties, int device))

#define AOTBUILD_HIP_OPTIONAL_FUNCTIONS(X)                                                        \
  X(stream_get_device, hipStreamGetDevice, Error, (Stream stream, int* device))                   \
  X(thread_exchange_stream_capture_mode, hipThreadExchangeStreamCaptureMode, Error, (int* mode))  \
  X(module_launch_cooperative_kernel, hipModuleLaunchCooperativeKernel, Error,                    \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,      \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream stream, void** arguments)) \
  X(drv_launch_kernel_ex, hipDrvLaunchKernelEx, Error,                                            \
    (const LaunchConfig* config, Function function, void** arguments, void** extra))

struct Api {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declarator takes none
#define AOTBUILD_HIP_MEMBER(name, symbol, result, parameters) result(*name) parameters;
  AOTBUILD_HIP_FUNCTIONS(AOTBUILD_HIP_MEMBER)
  AOTBUILD_HIP_PROPERTIES(AOTBUILD_HIP_MEMBER)
  AOTBUILD_HIP_OPTIONAL_FUNCTIONS(AOTBUILD_HIP_MEMBER)
#undef AOTBUILD_HIP_MEMBER
};

}  // namespace aotbuild::hip
