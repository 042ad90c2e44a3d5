// CUDA: the driver API of libcuda.so.1, 12.0 or newer.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "call.h"
#include "cuda_abi.h"
#include "driver.h"
#include "dynamic_library.h"
#include "error.h"

namespace aotbuild {
namespace {

constexpr const char* kLibraryNames[] = {"libcuda.so.1"};
constexpr uint32_t kSharedWithoutOptIn = 48 * 1024;
constexpr uint32_t kPortableClusterSize = 8;

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Calls of the driver, checked.
class CudaApi : public cuda::Api {
 public:
  CudaApi() : Api{} {
    std::string why;
    const DynamicLibrary library = DynamicLibrary::open(kLibraryNames, &why);
    if (!library) {
      throw Error(AOTBUILD_ERROR_NO_DRIVER,
                  "cannot load NVIDIA's driver library libcuda.so.1:" + why +
                      "\nInstall the NVIDIA driver (525 or newer), or in a container mount it "
                      "(NVIDIA Container Toolkit)");
    }
    find_version(library);
#define AOTBUILD_CUDA_FIND(name, symbol, parameters) find(library, #symbol, &(name));
    AOTBUILD_CUDA_FUNCTIONS(AOTBUILD_CUDA_FIND)
#undef AOTBUILD_CUDA_FIND
  }

  int version() const { return version_; }

  void check(cuda::Result result, const char* function, std::string_view doing) const {
    if (result == cuda::kSuccess) return;
    const char* name = nullptr;
    const char* text = nullptr;
    get_error_name(result, &name);
    get_error_string(result, &text);
    std::string message = std::string(function) + " failed while ";
    message.append(doing).append(": ").append(name != nullptr ? name : "unknown error");
    message.append(" (").append(std::to_string(result)).append(")");
    if (text != nullptr) message.append(", ").append(text);
    throw Error(AOTBUILD_ERROR_DRIVER, std::move(message));
  }

 private:
  // Before the functions, some of which an old driver lacks: its version is what helps its owner.
  void find_version(const DynamicLibrary& library) {
    find(library, "cuDriverGetVersion", &driver_get_version);
    const cuda::Result result = driver_get_version(&version_);
    if (result != cuda::kSuccess || version_ < cuda::kMinDriverVersion) {
      throw Error(AOTBUILD_ERROR_NO_DRIVER,
                  "libcuda.so.1 implements CUDA " + version_text(version_) + "; " +
                      version_text(cuda::kMinDriverVersion) +
                      " or newer is needed. Update the NVIDIA driver to 525 or newer");
    }
  }

  template <class F>
  void find(const DynamicLibrary& library, const char* symbol, F** function) {
    library.find(symbol, function);
    if (*function == nullptr) {
      throw Error(AOTBUILD_ERROR_NO_DRIVER, std::string("libcuda.so.1 (CUDA ") +
                                                version_text(version_) + ") has no function " +
                                                symbol + ". Update the NVIDIA driver");
    }
  }

  int version_ = 0;
};

// Makes a context current for a scope, unless it is already.
class CurrentContext {
 public:
  CurrentContext(const CudaApi& api, cuda::Context current, cuda::Context wanted) : api_(api) {
    if (current == wanted) return;
    api_.check(api_.ctx_push_current(wanted), "cuCtxPushCurrent", "entering a context");
    pushed_ = true;
  }
  ~CurrentContext() {
    cuda::Context popped = nullptr;
    if (pushed_) api_.ctx_pop_current(&popped);
  }
  CurrentContext(CurrentContext&& other) noexcept
      : api_(other.api_), pushed_(std::exchange(other.pushed_, false)) {}
  CurrentContext& operator=(CurrentContext&&) = delete;

 private:
  const CudaApi& api_;
  bool pushed_ = false;
};

// Loading allocates device memory, which a stream capture elsewhere in the process forbids unless
// the thread says that it takes no part in it. Loads belong to no stream, so that is the truth.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const CudaApi& api) : api_(api) {
    api_.check(api_.thread_exchange_stream_capture_mode(&mode_),
               "cuThreadExchangeStreamCaptureMode", "loading an image");
  }
  ~RelaxedCapture() { api_.thread_exchange_stream_capture_mode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const CudaApi& api_;
  int mode_ = cuda::kCaptureRelaxed;
};

class CudaDriver final : public Driver {
 public:
  CudaDriver();
  DeviceInfo device(int32_t id) override;
  void check_stream(int32_t id, aotbuild_stream stream) override { enter(id, stream); }
  Kernel load(int32_t id, const void* code, size_t size, const std::string& symbol,
              uint32_t shared) override;
  void unload(int32_t id, Kernel kernel) noexcept override;
  size_t encode(const format::Descriptor& descriptor, const aotbuild_tensor& tensor,
                void* bytes) override;
  void launch(int32_t id, aotbuild_stream stream, const Kernel& kernel, const LaunchConfig& config,
              void** arguments) override;

 private:
  struct DeviceSlot {
    cuda::Device handle = 0;
    std::mutex mutex;
    std::atomic<cuda::Context> primary{nullptr};
  };

  DeviceSlot& slot(int32_t id);
  cuda::Context primary_context(int32_t id);
  CurrentContext enter(int32_t id, aotbuild_stream stream);
  int attribute(int32_t id, cuda::DeviceAttribute attribute);
  int32_t ordinal(cuda::Device handle) const;

  const CudaApi api_;
  int device_count_ = 0;
  std::unique_ptr<DeviceSlot[]> slots_;
};

CudaDriver::CudaDriver() {
  api_.check(api_.init(0), "cuInit", "starting the driver");
  api_.check(api_.device_get_count(&device_count_), "cuDeviceGetCount", "counting devices");
  slots_ = std::make_unique<DeviceSlot[]>(static_cast<size_t>(device_count_));
  for (int i = 0; i < device_count_; ++i) {
    api_.check(api_.device_get(&slots_[i].handle, i), "cuDeviceGet",
               "opening device " + std::to_string(i));
  }
}

CudaDriver::DeviceSlot& CudaDriver::slot(int32_t id) {
  if (id < 0 || id >= device_count_) {
    throw Error(AOTBUILD_ERROR_INVALID_ARGUMENT, "there is no CUDA device " + std::to_string(id) +
                                                     ": the driver shows " +
                                                     std::to_string(device_count_));
  }
  return slots_[id];
}

int32_t CudaDriver::ordinal(cuda::Device handle) const {
  const DeviceSlot* begin = slots_.get();
  const DeviceSlot* end = begin + device_count_;
  return static_cast<int32_t>(
      std::find_if(begin, end, [&](const DeviceSlot& s) { return s.handle == handle; }) - begin);
}

int CudaDriver::attribute(int32_t id, cuda::DeviceAttribute attribute) {
  int value = 0;
  api_.check(api_.device_get_attribute(&value, attribute, slot(id).handle), "cuDeviceGetAttribute",
             "reading attribute " + std::to_string(attribute) + " of device " + std::to_string(id));
  return value;
}

DeviceInfo CudaDriver::device(int32_t id) {
  DeviceInfo info;
  info.arch = "sm_" + std::to_string(attribute(id, cuda::kComputeCapabilityMajor) * 10 +
                                     attribute(id, cuda::kComputeCapabilityMinor));
  info.multiprocessors = static_cast<uint32_t>(attribute(id, cuda::kMultiprocessorCount));
  info.max_shared = static_cast<uint32_t>(std::max(attribute(id, cuda::kMaxSharedPerBlockOptin),
                                                   attribute(id, cuda::kMaxSharedPerBlock)));
  info.cooperative = attribute(id, cuda::kCooperativeLaunch) != 0;
  return info;
}

// Retained once per device and kept: it is the context that the CUDA runtime uses, and releasing
// the last reference would destroy the host's allocations.
cuda::Context CudaDriver::primary_context(int32_t id) {
  DeviceSlot& device = slot(id);
  if (cuda::Context context = device.primary.load(std::memory_order_acquire)) return context;
  const std::lock_guard<std::mutex> lock(device.mutex);
  cuda::Context context = device.primary.load(std::memory_order_relaxed);
  if (context == nullptr) {
    api_.check(api_.device_primary_ctx_retain(&context, device.handle), "cuDevicePrimaryCtxRetain",
               "opening device " + std::to_string(id));
    device.primary.store(context, std::memory_order_release);
  }
  return context;
}

// The context to work in: the stream's own. The special handles null, legacy (1) and per-thread
// (2) belong to whatever context is current; that is right when it is one of device `id`, else
// the device's primary context is meant.
CurrentContext CudaDriver::enter(int32_t id, aotbuild_stream stream) {
  const cuda::Device wanted = slot(id).handle;
  cuda::Context current = nullptr;
  api_.check(api_.ctx_get_current(&current), "cuCtxGetCurrent", "reading the current context");
  cuda::Device device = 0;
  if (reinterpret_cast<uintptr_t>(stream) <= 2) {
    if (current != nullptr) {
      api_.check(api_.ctx_get_device(&device), "cuCtxGetDevice", "reading the current device");
      if (device == wanted) return CurrentContext(api_, current, current);
    }
    return CurrentContext(api_, current, primary_context(id));
  }
  cuda::Context owner = nullptr;
  api_.check(api_.stream_get_ctx(static_cast<cuda::Stream>(stream), &owner), "cuStreamGetCtx",
             "finding the stream's device");
  CurrentContext scope(api_, current, owner);
  api_.check(api_.ctx_get_device(&device), "cuCtxGetDevice", "finding the stream's device");
  if (device != wanted) {
    throw Error(AOTBUILD_ERROR_INVALID_ARGUMENT,
                "the stream belongs to CUDA device " + std::to_string(ordinal(device)) +
                    ", but the tensors are on device " + std::to_string(id) +
                    ": pass a stream of the tensors' device");
  }
  return scope;
}

// A library and its kernels belong to no context, so one load serves every context of the device.
// cuKernelGetFunction makes the driver load the code now even when it is set to load lazily:
// failures show here, and not as a broken first launch or stream capture.
Kernel CudaDriver::load(int32_t id, const void* code, size_t /*size*/, const std::string& symbol,
                        uint32_t shared) {
  const std::string doing = "loading " + symbol + " on CUDA device " + std::to_string(id);
  const CurrentContext scope = enter(id, nullptr);
  const RelaxedCapture relaxed(api_);
  cuda::Library library = nullptr;
  api_.check(api_.library_load_data(&library, code, nullptr, nullptr, 0, nullptr, nullptr, 0),
             "cuLibraryLoadData", doing);
  try {
    cuda::Kernel kernel = nullptr;
    api_.check(api_.library_get_kernel(&kernel, library, symbol.c_str()), "cuLibraryGetKernel",
               doing);
    if (shared > kSharedWithoutOptIn) {
      api_.check(api_.kernel_set_attribute(cuda::kMaxDynamicSharedBytes, static_cast<int>(shared),
                                           kernel, slot(id).handle),
                 "cuKernelSetAttribute",
                 "allowing " + std::to_string(shared) + " bytes of shared memory for " + symbol);
    }
    cuda::Function function = nullptr;
    api_.check(api_.kernel_get_function(&function, kernel), "cuKernelGetFunction", doing);
    return Kernel{library, kernel};
  } catch (...) {
    api_.library_unload(library);
    throw;
  }
}

// Errors are of no use to anyone here; one is normal: at exit the driver may be gone already.
void CudaDriver::unload(int32_t /*id*/, Kernel kernel) noexcept {
  api_.library_unload(static_cast<cuda::Library>(kernel.module));
}

// Triton numbers fp64, bf16 and fp32-with-flush otherwise than the driver.
int map_type(const format::Descriptor& descriptor) {
  if ((descriptor.flags & format::kRoundToTf32) != 0) return cuda::kMapTfloat32;
  switch (descriptor.element_type) {
    case 8:
      return cuda::kMapFloat32Ftz;
    case 9:
      return cuda::kMapFloat64;
    case 10:
      return cuda::kMapBfloat16;
    default:
      return descriptor.element_type;
  }
}

// A tensor as a tensor map counts it: innermost dimension first.
struct MapShape {
  uint64_t sizes[cuda::kMaxTensorMapRank] = {};
  uint64_t strides[cuda::kMaxTensorMapRank] = {};  // bytes, from dimension 1 on
  uint32_t box[cuda::kMaxTensorMapRank] = {};
  uint64_t span = 1;  // bytes from the first to the end of the last element's first byte
};

MapShape map_shape(const format::Descriptor& descriptor, const aotbuild_tensor& tensor) {
  MapShape shape;
  const int rank = descriptor.rank;
  const uint64_t element = descriptor.element_bits / 8U;
  for (int i = 0; i < rank; ++i) {
    const int dim = rank - 1 - i;
    shape.sizes[i] = static_cast<uint64_t>(tensor.shape[dim]);
    shape.box[i] = descriptor.box[dim];
    if (i > 0) shape.strides[i - 1] = static_cast<uint64_t>(stride_of(tensor, dim)) * element;
  }
  // Two fp4 numbers lie in a byte, and the map counts numbers.
  if ((descriptor.flags & format::kFp4Padded) != 0) shape.sizes[0] *= 2;
  for (int i = 0; i < rank; ++i) {
    shape.span += (shape.sizes[i] - 1) * (i == 0 ? element : shape.strides[i - 1]);
  }
  return shape;
}

size_t CudaDriver::encode(const format::Descriptor& descriptor, const aotbuild_tensor& tensor,
                          void* bytes) {
  const MapShape shape = map_shape(descriptor, tensor);
  const uint32_t element_strides[cuda::kMaxTensorMapRank] = {1, 1, 1, 1, 1};
  const bool nan_fill = (descriptor.flags & format::kNanFill) != 0;
  auto* map = static_cast<cuda::TensorMap*>(bytes);
  api_.check(api_.tensor_map_encode_tiled(
                 map, map_type(descriptor), descriptor.rank,
                 static_cast<char*>(tensor.data) + tensor.byte_offset, shape.sizes, shape.strides,
                 shape.box, element_strides, cuda::kInterleaveNone, descriptor.swizzle,
                 cuda::kPromotion128B, nan_fill ? cuda::kFillNan : cuda::kFillZero),
             "cuTensorMapEncodeTiled", "describing a tensor");
  // Drivers up to 13.1 set a bit that is wrong for tensors that span less than 128 KiB.
  constexpr int kLastDriverWithSmallSpanBit = 13010;
  constexpr uint64_t kSmallSpan = uint64_t{128} * 1024;
  if (api_.version() <= kLastDriverWithSmallSpanBit && shape.span < kSmallSpan) {
    map->opaque[1] &= ~(uint64_t{1} << 21);
  }
  return sizeof(cuda::TensorMap);
}

// Attributes only where an image asks for them: each costs time, and old devices refuse some.
unsigned launch_attributes(const LaunchConfig& config, cuda::LaunchAttribute* attributes) {
  unsigned count = 0;
  const auto add = [&](cuda::LaunchAttributeId id) -> cuda::LaunchAttributeValue& {
    attributes[count].id = id;
    return attributes[count++].value;
  };
  if (config.programmatic) {
    add(cuda::kAttributeProgrammaticSerialization).programmatic_serialization = 1;
  }
  if (config.cooperative) add(cuda::kAttributeCooperative).cooperative = 1;
  if (config.cluster[0] * config.cluster[1] * config.cluster[2] > 1) {
    add(cuda::kAttributeClusterDimension).cluster = {config.cluster[0], config.cluster[1],
                                                     config.cluster[2]};
    add(cuda::kAttributeClusterScheduling).scheduling = cuda::kSchedulingSpread;
  }
  return count;
}

void CudaDriver::launch(int32_t id, aotbuild_stream stream, const Kernel& kernel,
                        const LaunchConfig& config, void** arguments) {
  const CurrentContext scope = enter(id, stream);
  if (config.cluster[0] * config.cluster[1] * config.cluster[2] > kPortableClusterSize) {
    api_.check(
        api_.kernel_set_attribute(cuda::kNonPortableClusterSizeAllowed, 1,
                                  static_cast<cuda::Kernel>(kernel.function), slot(id).handle),
        "cuKernelSetAttribute", "allowing a cluster of more than 8 blocks");
  }
  cuda::LaunchAttribute attributes[4] = {};
  const unsigned count = launch_attributes(config, attributes);
  const cuda::LaunchConfig native = {config.grid[0],
                                     config.grid[1],
                                     config.grid[2],
                                     config.threads,
                                     1,
                                     1,
                                     config.shared,
                                     static_cast<cuda::Stream>(stream),
                                     count == 0 ? nullptr : attributes,
                                     count};
  // The driver takes a context-free kernel in place of a function.
  api_.check(api_.launch_kernel_ex(&native, static_cast<cuda::Function>(kernel.function), arguments,
                                   nullptr),
             "cuLaunchKernelEx", "launching");
}

}  // namespace

Driver& cuda_driver() {
  static CudaDriver* const driver = new CudaDriver;  // for ever: see DynamicLibrary
  return *driver;
}

}  // namespace aotbuild
