// Compares hip_abi.h with AMD's own header, of ROCm 5 to 7. It only compiles.
#include <hip/hip_runtime_api.h>
#include <hip/hip_version.h>

#include "abi_compatible.h"
#include "hip_abi.h"

namespace aotbuild::hip {

#define SAME_FUNCTION(name, symbol, result, parameters) \
  static_assert(abi::Compatible<result parameters, decltype(::symbol)>::value, #symbol);
AOTBUILD_HIP_FUNCTIONS(SAME_FUNCTION)

#define SAME_VALUE(ours, theirs) static_assert(int{ours} == int{theirs}, #theirs);
SAME_VALUE(kSuccess, hipSuccess)
SAME_VALUE(kCooperativeLaunch, hipDeviceAttributeCooperativeLaunch)
SAME_VALUE(kMultiprocessorCount, hipDeviceAttributeMultiprocessorCount)
SAME_VALUE(kMaxSharedPerBlock, hipDeviceAttributeMaxSharedMemoryPerBlock)
SAME_VALUE(kCaptureRelaxed, hipStreamCaptureModeRelaxed)

static_assert(sizeof(hipDeviceProp_t) * 4 <= kPropertiesBytes, "room for a larger one");
static_assert(sizeof(hipDeviceProp_t::gcnArchName) == kArchNameBytes, "gcnArchName");

#define SAME_SIZE(ours, theirs)                                   \
  static_assert(sizeof(ours) == sizeof(theirs), #theirs " size"); \
  static_assert(alignof(ours) >= alignof(theirs), #theirs " alignment");
#define SAME_OFFSET(ours, member, theirs, their_member)                   \
  static_assert(offsetof(ours, member) == offsetof(theirs, their_member), \
                #theirs "." #their_member);

SAME_SIZE(Error, hipError_t)

#if HIP_VERSION_MAJOR < 6
static_assert(offsetof(hipDeviceProp_t, gcnArchName) == kArchNameOffset, "gcnArchName");
#else
// The header renames hipGetDeviceProperties to the function of the larger struct.
static_assert(offsetof(hipDeviceProp_t, gcnArchName) == kArchNameOffsetR0600, "gcnArchName");
static_assert(abi::Compatible<Error(void*, int), decltype(::hipGetDevicePropertiesR0600)>::value,
              "hipGetDevicePropertiesR0600");
#endif

#if HIP_VERSION_MAJOR >= 7
AOTBUILD_HIP_OPTIONAL_FUNCTIONS(SAME_FUNCTION)
SAME_VALUE(kAttributeCooperative, hipLaunchAttributeCooperative)
SAME_SIZE(LaunchAttributeValue, hipLaunchAttributeValue)
SAME_SIZE(LaunchAttribute, hipLaunchAttribute)
SAME_OFFSET(LaunchAttribute, id, hipLaunchAttribute, id)
SAME_OFFSET(LaunchAttribute, value, hipLaunchAttribute, val)
SAME_OFFSET(LaunchAttributeValue, cooperative, hipLaunchAttributeValue, cooperative)
SAME_SIZE(LaunchConfig, HIP_LAUNCH_CONFIG)
SAME_OFFSET(LaunchConfig, grid_x, HIP_LAUNCH_CONFIG, gridDimX)
SAME_OFFSET(LaunchConfig, grid_y, HIP_LAUNCH_CONFIG, gridDimY)
SAME_OFFSET(LaunchConfig, grid_z, HIP_LAUNCH_CONFIG, gridDimZ)
SAME_OFFSET(LaunchConfig, block_x, HIP_LAUNCH_CONFIG, blockDimX)
SAME_OFFSET(LaunchConfig, block_y, HIP_LAUNCH_CONFIG, blockDimY)
SAME_OFFSET(LaunchConfig, block_z, HIP_LAUNCH_CONFIG, blockDimZ)
SAME_OFFSET(LaunchConfig, shared_bytes, HIP_LAUNCH_CONFIG, sharedMemBytes)
SAME_OFFSET(LaunchConfig, stream, HIP_LAUNCH_CONFIG, hStream)
SAME_OFFSET(LaunchConfig, attributes, HIP_LAUNCH_CONFIG, attrs)
SAME_OFFSET(LaunchConfig, attribute_count, HIP_LAUNCH_CONFIG, numAttrs)
#endif

}  // namespace aotbuild::hip
