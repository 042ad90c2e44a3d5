// The part of the CUDA driver's ABI that the runtime uses, so that no vendor header is needed to
// build it. abi/cuda_abi_check.cc compares every line with the real cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aotbuild::cuda {

using Result = int;
using Device = int;
using Context = struct ContextRecord*;
using Stream = struct StreamRecord*;
using Library = struct LibraryRecord*;
using Kernel = struct KernelRecord*;
using Function = struct FunctionRecord*;

inline constexpr Result kSuccess = 0;
inline constexpr int kMinDriverVersion = 12000;  // cuLibrary*, cuLaunchKernelEx, tensor maps

enum DeviceAttribute : int {
  kMaxSharedPerBlock = 8,
  kMultiprocessorCount = 16,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kCooperativeLaunch = 95,
  kMaxSharedPerBlockOptin = 97,
};

enum FunctionAttribute : int {
  kMaxDynamicSharedBytes = 8,
  kNonPortableClusterSizeAllowed = 14,
};

enum CaptureMode : int { kCaptureRelaxed = 2 };

enum LaunchAttributeId : int {
  kAttributeCooperative = 2,
  kAttributeClusterDimension = 4,
  kAttributeClusterScheduling = 5,
  kAttributeProgrammaticSerialization = 6,
};

enum ClusterScheduling : int { kSchedulingSpread = 1 };

union alignas(8) LaunchAttributeValue {
  char pad[64];
  int cooperative;
  struct {
    unsigned x, y, z;
  } cluster;
  int scheduling;
  int programmatic_serialization;
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

inline constexpr int kMaxTensorMapRank = 5;

// 64 was enough up to CUDA 12.
struct alignas(128) TensorMap {
  uint64_t opaque[16];
};

enum TensorMapType : int {
  kMapFloat16 = 6,
  kMapFloat32 = 7,
  kMapFloat64 = 8,
  kMapBfloat16 = 9,
  kMapFloat32Ftz = 10,
  kMapTfloat32 = 11,
};
enum TensorMapInterleave : int { kInterleaveNone = 0 };
enum TensorMapL2Promotion : int { kPromotion128B = 2 };
enum TensorMapFill : int { kFillZero = 0, kFillNan = 1 };

// X(name, exported symbol, parameters). All return Result.
#define AOTBUILD_CUDA_FUNCTIONS(X)                                                                \
  X(init, cuInit, (unsigned flags))                                                               \
  X(driver_get_version, cuDriverGetVersion, (int* version))                                       \
  X(get_error_name, cuGetErrorName, (Result error, const char** name))                            \
  X(get_error_string, cuGetErrorString, (Result error, const char** text))                        \
  X(device_get_count, cuDeviceGetCount, (int* count))                                             \
  X(device_get, cuDeviceGet, (Device * device, int ordinal))                                      \
  X(device_get_attribute, cuDeviceGetAttribute, (int* value, int attribute, Device device))       \
  X(device_primary_ctx_retain, cuDevicePrimaryCtxRetain, (Context * context, Device device))      \
  X(ctx_get_current, cuCtxGetCurrent, (Context * context))                                        \
  X(ctx_get_device, cuCtxGetDevice, (Device * device))                                            \
  X(ctx_push_current, cuCtxPushCurrent_v2, (Context context))                                     \
  X(ctx_pop_current, cuCtxPopCurrent_v2, (Context * context))                                     \
  X(stream_get_ctx, cuStreamGetCtx, (Stream stream, Context * context))                           \
  X(thread_exchange_stream_capture_mode, cuThreadExchangeStreamCaptureMode, (int* mode))          \
  X(library_load_data, cuLibraryLoadData,                                                         \
    (Library * library, const void* code, void* jit_options, void** jit_values,                   \
     unsigned jit_count, void* options, void** values, unsigned count))                           \
  X(library_unload, cuLibraryUnload, (Library library))                                           \
  X(library_get_kernel, cuLibraryGetKernel, (Kernel * kernel, Library library, const char* name)) \
  X(kernel_get_function, cuKernelGetFunction, (Function * function, Kernel kernel))               \
  X(kernel_set_attribute, cuKernelSetAttribute,                                                   \
    (int attribute, int value, Kernel kernel, Device device))                                     \
  X(launch_kernel_ex, cuLaunchKernelEx,                                                           \
    (const LaunchConfig* config, Function function, void** arguments, void** extra))              \
  X(tensor_map_encode_tiled, cuTensorMapEncodeTiled,                                              \
    (TensorMap * map, int type, uint32_t rank, void* address, const uint64_t* sizes,              \
     const uint64_t* strides, const uint32_t* box, const uint32_t* element_strides,               \
     int interleave, int swizzle, int l2_promotion, int fill))

struct Api {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declarator takes none
#define AOTBUILD_CUDA_MEMBER(name, symbol, parameters) Result(*name) parameters;
  AOTBUILD_CUDA_FUNCTIONS(AOTBUILD_CUDA_MEMBER)
#undef AOTBUILD_CUDA_MEMBER
};

}  // namespace aotbuild::cuda
