// Compares cuda_abi.h with NVIDIA's own header. It only compiles.
#include <cuda.h>

#include "abi_compatible.h"
#include "cuda_abi.h"

namespace aotbuild::cuda {

#define SAME_FUNCTION(name, symbol, parameters) \
  static_assert(abi::Compatible<Result parameters, decltype(::symbol)>::value, #symbol);
AOTBUILD_CUDA_FUNCTIONS(SAME_FUNCTION)

#define SAME_VALUE(ours, theirs) static_assert(int{ours} == int{theirs}, #theirs);
SAME_VALUE(kSuccess, CUDA_SUCCESS)
SAME_VALUE(kMaxSharedPerBlock, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)
SAME_VALUE(kMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
SAME_VALUE(kComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
SAME_VALUE(kComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
SAME_VALUE(kCooperativeLaunch, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)
SAME_VALUE(kMaxSharedPerBlockOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
SAME_VALUE(kMaxDynamicSharedBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
SAME_VALUE(kNonPortableClusterSizeAllowed, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)
SAME_VALUE(kCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED)
SAME_VALUE(kAttributeCooperative, CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
SAME_VALUE(kAttributeClusterDimension, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
SAME_VALUE(kAttributeClusterScheduling, CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE)
SAME_VALUE(kAttributeProgrammaticSerialization,
           CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
SAME_VALUE(kSchedulingSpread, CU_CLUSTER_SCHEDULING_POLICY_SPREAD)
SAME_VALUE(kMapFloat16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16)
SAME_VALUE(kMapFloat32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32)
SAME_VALUE(kMapFloat64, CU_TENSOR_MAP_DATA_TYPE_FLOAT64)
SAME_VALUE(kMapBfloat16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16)
SAME_VALUE(kMapFloat32Ftz, CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ)
SAME_VALUE(kMapTfloat32, CU_TENSOR_MAP_DATA_TYPE_TFLOAT32)
SAME_VALUE(kInterleaveNone, CU_TENSOR_MAP_INTERLEAVE_NONE)
SAME_VALUE(kPromotion128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B)
SAME_VALUE(kFillZero, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
SAME_VALUE(kFillNan, CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA)

#define SAME_SIZE(ours, theirs)                                   \
  static_assert(sizeof(ours) == sizeof(theirs), #theirs " size"); \
  static_assert(alignof(ours) >= alignof(theirs), #theirs " alignment");
#define SAME_OFFSET(ours, member, theirs, their_member)                   \
  static_assert(offsetof(ours, member) == offsetof(theirs, their_member), \
                #theirs "." #their_member);

SAME_SIZE(Device, CUdevice)
SAME_SIZE(Result, CUresult)
SAME_SIZE(TensorMap, CUtensorMap)
SAME_SIZE(LaunchAttributeValue, CUlaunchAttributeValue)
SAME_SIZE(LaunchAttribute, CUlaunchAttribute)
SAME_OFFSET(LaunchAttribute, id, CUlaunchAttribute, id)
SAME_OFFSET(LaunchAttribute, value, CUlaunchAttribute, value)
SAME_OFFSET(LaunchAttributeValue, cooperative, CUlaunchAttributeValue, cooperative)
SAME_OFFSET(LaunchAttributeValue, cluster.x, CUlaunchAttributeValue, clusterDim.x)
SAME_OFFSET(LaunchAttributeValue, cluster.y, CUlaunchAttributeValue, clusterDim.y)
SAME_OFFSET(LaunchAttributeValue, cluster.z, CUlaunchAttributeValue, clusterDim.z)
SAME_OFFSET(LaunchAttributeValue, scheduling, CUlaunchAttributeValue,
            clusterSchedulingPolicyPreference)
SAME_OFFSET(LaunchAttributeValue, programmatic_serialization, CUlaunchAttributeValue,
            programmaticStreamSerializationAllowed)
SAME_SIZE(LaunchConfig, CUlaunchConfig)
SAME_OFFSET(LaunchConfig, grid_x, CUlaunchConfig, gridDimX)
SAME_OFFSET(LaunchConfig, grid_y, CUlaunchConfig, gridDimY)
SAME_OFFSET(LaunchConfig, grid_z, CUlaunchConfig, gridDimZ)
SAME_OFFSET(LaunchConfig, block_x, CUlaunchConfig, blockDimX)
SAME_OFFSET(LaunchConfig, block_y, CUlaunchConfig, blockDimY)
SAME_OFFSET(LaunchConfig, block_z, CUlaunchConfig, blockDimZ)
SAME_OFFSET(LaunchConfig, shared_bytes, CUlaunchConfig, sharedMemBytes)
SAME_OFFSET(LaunchConfig, stream, CUlaunchConfig, hStream)
SAME_OFFSET(LaunchConfig, attributes, CUlaunchConfig, attrs)
SAME_OFFSET(LaunchConfig, attribute_count, CUlaunchConfig, numAttrs)

}  // namespace aotbuild::cuda
