// A stand-in for libcuda.so.1 (see fake_driver.h).
#include <algorithm>
#include <cstring>
#include <memory>
#include <set>

#include "cuda_abi.h"
#include "fake_driver.h"

namespace aotbuild::cuda {

struct ContextRecord {
  int device;
};
struct StreamRecord {
  Context context;
};
struct KernelRecord {
  std::string name;
  std::map<int, int> max_shared;  // by device
  std::set<int> wide_clusters;    // devices
};
struct LibraryRecord {
  std::map<std::string, std::unique_ptr<KernelRecord>> kernels;
};

namespace {

enum : int {
  kInvalidValue = 1,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kInvalidImage = 200,
  kInvalidHandle = 400,
  kNotFound = 500,
  kLaunchOutOfResources = 701,
  kCaptureUnsupported = 900,
};

// Handles are not numbers from 0 on, so that taking one for the other shows.
constexpr Device kFirstHandle = 10;

thread_local std::vector<Context> stack;
thread_local int capture_mode = 0;

class FakeCuda final : public test::FakeDriver {
 public:
  FakeCuda() { reset(); }
  static FakeCuda& get() {
    static auto* const fake = new FakeCuda;  // outlives whatever unloads at exit
    return *fake;
  }

  void reset() override {
    test::FakeDevice device;
    device.capability = test::environment("FAKE_CUDA_CAPABILITY", device.capability);
    reset_base(device);
    stack.clear();
    capture_mode = 0;
  }
  void* make_stream(int device) override { return make_stream_in(make_context(device)); }
  void* make_context(int device) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    contexts_.push_back(std::make_unique<ContextRecord>(ContextRecord{device}));
    return contexts_.back().get();
  }
  void set_current(uintptr_t current) override {
    stack.clear();
    if (current != 0) stack.push_back(reinterpret_cast<Context>(current));
  }
  uintptr_t current() const override {
    return stack.empty() ? 0 : reinterpret_cast<uintptr_t>(stack.back());
  }
  int modules() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<int>(libraries_.size());
  }
  int last_error() const override { return 0; }

  template <class Body>
  Result call(const char* function, const Body& body) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Result injected = enter(function);
    return injected != 0 ? injected : body();
  }
  using FakeDriver::complain;

  Result attribute(int* value, int attribute, Device handle) {
    if (!is_device(handle)) return complain("no such device handle", kInvalidDevice);
    const test::FakeDevice& device = devices_[handle - kFirstHandle];
    const std::map<int, int> values = {{kMaxSharedPerBlock, device.shared},
                                       {kMaxSharedPerBlockOptin, device.shared_optin},
                                       {kMultiprocessorCount, device.multiprocessors},
                                       {kComputeCapabilityMajor, device.capability / 10},
                                       {kComputeCapabilityMinor, device.capability % 10},
                                       {kCooperativeLaunch, device.cooperative ? 1 : 0}};
    const auto found = values.find(attribute);
    if (found == values.end()) return complain("unknown device attribute", kInvalidValue);
    *value = found->second;
    return kSuccess;
  }
  Result retain(Context* context, Device handle) {
    if (!is_device(handle)) return complain("no such device handle", kInvalidDevice);
    *context = &primary_[handle - kFirstHandle];
    return kSuccess;
  }
  Result stream_context(Stream stream, Context* context) {
    if (!is_stream(stream)) return complain("not a stream", kInvalidHandle);
    *context = stream->context;
    return kSuccess;
  }
  Result load(Library* library, const void* code) {
    if (stack.empty()) return complain("load without a context", kInvalidContext);
    if (capturing_ && capture_mode != kCaptureRelaxed) return kCaptureUnsupported;
    if (std::memcmp(code,
                    "\x7f"
                    "ELF",
                    4) != 0)
      return complain("not an ELF", kInvalidImage);
    libraries_.push_back(std::make_unique<LibraryRecord>());
    *library = libraries_.back().get();
    return kSuccess;
  }
  Result unload(Library library) {
    const auto found = std::find_if(libraries_.begin(), libraries_.end(),
                                    [&](const auto& entry) { return entry.get() == library; });
    if (found == libraries_.end()) return complain("unload of no library", kInvalidHandle);
    libraries_.erase(found);
    return kSuccess;
  }
  Result get_kernel(Kernel* kernel, Library library, const std::string& name) {
    if (name.compare(0, 7, "missing") == 0) return kNotFound;
    auto& entry = library->kernels[name];
    if (entry == nullptr) entry = std::make_unique<KernelRecord>(KernelRecord{name, {}, {}});
    *kernel = entry.get();
    return kSuccess;
  }
  Result get_function(Function* function, Kernel kernel) {
    if (stack.empty()) return complain("cuKernelGetFunction without a context", kInvalidContext);
    if (!is_kernel(kernel)) return complain("not a kernel", kInvalidHandle);
    *function = reinterpret_cast<Function>(kernel);
    return kSuccess;
  }
  Result set_attribute(int attribute, int value, Kernel kernel, Device handle) {
    if (!is_kernel(kernel)) return complain("not a kernel", kInvalidHandle);
    if (!is_device(handle)) return complain("no such device handle", kInvalidDevice);
    const int device = handle - kFirstHandle;
    if (attribute == kNonPortableClusterSizeAllowed) {
      kernel->wide_clusters.insert(device);
      return kSuccess;
    }
    if (attribute != kMaxDynamicSharedBytes) return complain("unknown attribute", kInvalidValue);
    if (value > devices_[device].shared_optin) return complain("too much shared", kInvalidValue);
    kernel->max_shared[device] = value;
    return kSuccess;
  }
  Result launch(const LaunchConfig& config, Function function, void** arguments) {
    auto* const kernel = reinterpret_cast<Kernel>(function);
    if (stack.empty()) return complain("launch without a context", kInvalidContext);
    if (!is_kernel(kernel)) return complain("launch of no kernel", kInvalidHandle);
    test::RecordedLaunch launch;
    launch.context = stack.back();
    launch.device = stack.back()->device;
    launch.stream = config.stream;
    launch.symbol = kernel->name;
    launch.grid = {config.grid_x, config.grid_y, config.grid_z};
    launch.block = {config.block_x, config.block_y, config.block_z};
    launch.shared = config.shared_bytes;
    if (const Result result = check_launch(config, *kernel, launch.device)) return result;
    if (const Result result = read_attributes(config, *kernel, &launch)) return result;
    launch.arguments = copy_arguments(arguments);
    launches_.push_back(std::move(launch));
    return kSuccess;
  }

 private:
  void* make_stream_in(void* context) {
    const std::lock_guard<std::mutex> lock(mutex_);
    streams_.push_back(std::make_unique<StreamRecord>(StreamRecord{static_cast<Context>(context)}));
    return streams_.back().get();
  }
  static bool is_device(Device handle) {
    return handle >= kFirstHandle && handle < kFirstHandle + test::kFakeDevices;
  }
  bool is_stream(Stream stream) const {
    return std::any_of(streams_.begin(), streams_.end(),
                       [&](const auto& entry) { return entry.get() == stream; });
  }
  bool is_kernel(Kernel kernel) const {
    return std::any_of(libraries_.begin(), libraries_.end(), [&](const auto& library) {
      return std::any_of(library->kernels.begin(), library->kernels.end(),
                         [&](const auto& entry) { return entry.second.get() == kernel; });
    });
  }
  Result check_launch(const LaunchConfig& config, const KernelRecord& kernel, int device) {
    if (reinterpret_cast<uintptr_t>(config.stream) > 2) {
      if (!is_stream(config.stream)) return complain("launch on no stream", kInvalidHandle);
      if (config.stream->context != stack.back()) {
        return complain("launch in another context than the stream's", kInvalidContext);
      }
    }
    const uint64_t blocks = uint64_t{config.grid_x} * config.grid_y * config.grid_z;
    const uint64_t threads = uint64_t{config.block_x} * config.block_y * config.block_z;
    if (blocks == 0 || threads == 0 || threads > 1024) {
      return complain("impossible grid or block", kInvalidValue);
    }
    const auto allowed = kernel.max_shared.find(device);
    const int limit =
        allowed == kernel.max_shared.end() ? devices_[device].shared : allowed->second;
    if (config.shared_bytes > static_cast<unsigned>(limit)) {
      return complain("more shared memory than was allowed", kLaunchOutOfResources);
    }
    return kSuccess;
  }
  Result read_attributes(const LaunchConfig& config, const KernelRecord& kernel,
                         test::RecordedLaunch* launch) {
    if ((config.attribute_count == 0) != (config.attributes == nullptr)) {
      return complain("attributes and their count disagree", kInvalidValue);
    }
    for (unsigned i = 0; i < config.attribute_count; ++i) {
      const LaunchAttribute& attribute = config.attributes[i];
      switch (attribute.id) {
        case kAttributeCooperative:
          launch->cooperative = attribute.value.cooperative == 1;
          break;
        case kAttributeProgrammaticSerialization:
          launch->programmatic = attribute.value.programmatic_serialization == 1;
          break;
        case kAttributeClusterScheduling:
          launch->spread = attribute.value.scheduling == kSchedulingSpread;
          break;
        case kAttributeClusterDimension:
          launch->cluster = {attribute.value.cluster.x, attribute.value.cluster.y,
                             attribute.value.cluster.z};
          break;
        default:
          return complain("unknown launch attribute", kInvalidValue);
      }
    }
    return launch->cluster.empty() ? kSuccess : check_cluster(config, kernel, *launch);
  }
  Result check_cluster(const LaunchConfig& config, const KernelRecord& kernel,
                       const test::RecordedLaunch& launch) {
    const auto& cluster = launch.cluster;
    if (config.grid_x % cluster[0] + config.grid_y % cluster[1] + config.grid_z % cluster[2] != 0) {
      return complain("a grid that is no multiple of the cluster", kInvalidValue);
    }
    if (cluster[0] * cluster[1] * cluster[2] > 8 &&
        kernel.wide_clusters.count(launch.device) == 0) {
      return complain("a cluster of more than 8 that was not allowed", kInvalidValue);
    }
    return kSuccess;
  }

  ContextRecord primary_[test::kFakeDevices] = {{0}, {1}};
  std::vector<std::unique_ptr<ContextRecord>> contexts_;
  std::vector<std::unique_ptr<StreamRecord>> streams_;
  std::vector<std::unique_ptr<LibraryRecord>> libraries_;
};

// Fields in place of the real, secret encoding; bit 21 of word 1 is set as old drivers set it.
Result encode_map(TensorMap* map, int type, uint32_t rank, void* address, const uint64_t* sizes,
                  const uint64_t* strides, const uint32_t* box, const uint32_t* element_strides,
                  int interleave, int swizzle, int l2_promotion, int fill) {
  FakeCuda& fake = FakeCuda::get();
  if (reinterpret_cast<uintptr_t>(map) % 128 != 0) {
    return fake.complain("a tensor map that is not aligned to 128", kInvalidValue);
  }
  if (rank < 1 || rank > 5 || reinterpret_cast<uintptr_t>(address) % 16 != 0) {
    return fake.complain("a tensor map of wrong rank or address", kInvalidValue);
  }
  *map = {};
  map->opaque[0] = reinterpret_cast<uintptr_t>(address);
  map->opaque[1] = uint64_t{1} << 21 | static_cast<uint64_t>(type) << 32 | rank;
  for (uint32_t i = 0; i < rank; ++i) {
    if (sizes[i] == 0 || box[i] == 0 || element_strides[i] != 1) {
      return fake.complain("a tensor map of empty size", kInvalidValue);
    }
    map->opaque[2 + i] = sizes[i] | static_cast<uint64_t>(box[i]) << 40;
    if (i + 1 == rank) continue;
    if (strides[i] % 16 != 0) {
      return fake.complain("a tensor map with an odd stride", kInvalidValue);
    }
    map->opaque[7 + i] = strides[i];
  }
  map->opaque[12] = static_cast<uint64_t>(interleave) | static_cast<uint64_t>(swizzle) << 8 |
                    static_cast<uint64_t>(l2_promotion) << 16 | static_cast<uint64_t>(fill) << 24;
  return kSuccess;
}

}  // namespace
}  // namespace aotbuild::cuda

using namespace aotbuild::cuda;  // NOLINT(google-build-using-namespace): C functions below

// A counted call, answered by a method of the stand-in.
#define FORWARD(function, method) \
  FakeCuda::get().call(function, [&] { return FakeCuda::get().method; })

#define FAKE_API extern "C" __attribute__((visibility("default"))) Result

extern "C" __attribute__((visibility("default"))) aotbuild::test::FakeDriver* fake_driver() {
  return &FakeCuda::get();
}

FAKE_API cuDriverGetVersion(int* version) {
  *version = aotbuild::test::environment("FAKE_CUDA_VERSION", 12040);
  return FakeCuda::get().call("cuDriverGetVersion", [] { return kSuccess; });
}
FAKE_API cuInit(unsigned) {
  return FakeCuda::get().call("cuInit",
                              [] { return aotbuild::test::environment("FAKE_CUDA_INIT", 0); });
}
FAKE_API cuGetErrorName(Result error, const char** name) {
  *name = error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_FAKE";
  return kSuccess;
}
FAKE_API cuGetErrorString(Result, const char** text) {
  *text = "a fake error";
  return kSuccess;
}
FAKE_API cuDeviceGetCount(int* count) {
  *count = aotbuild::test::kFakeDevices;
  return FakeCuda::get().call("cuDeviceGetCount", [] { return kSuccess; });
}
FAKE_API cuDeviceGet(Device* device, int ordinal) {
  *device = kFirstHandle + ordinal;
  return FakeCuda::get().call("cuDeviceGet", [] { return kSuccess; });
}
FAKE_API cuDeviceGetAttribute(int* value, int attribute, Device device) {
  return FORWARD("cuDeviceGetAttribute", attribute(value, attribute, device));
}
FAKE_API cuDevicePrimaryCtxRetain(Context* context, Device device) {
  return FORWARD("cuDevicePrimaryCtxRetain", retain(context, device));
}
FAKE_API cuCtxGetCurrent(Context* context) {
  return FakeCuda::get().call("cuCtxGetCurrent", [&] {
    *context = stack.empty() ? nullptr : stack.back();
    return kSuccess;
  });
}
FAKE_API cuCtxGetDevice(Device* device) {
  return FakeCuda::get().call("cuCtxGetDevice", [&]() -> Result {
    if (stack.empty()) return kInvalidContext;
    *device = kFirstHandle + stack.back()->device;
    return kSuccess;
  });
}
FAKE_API cuCtxPushCurrent_v2(Context context) {
  return FakeCuda::get().call("cuCtxPushCurrent", [&] {
    stack.push_back(context);
    return kSuccess;
  });
}
FAKE_API cuCtxPopCurrent_v2(Context* context) {
  return FakeCuda::get().call("cuCtxPopCurrent", [&]() -> Result {
    if (stack.empty()) return FakeCuda::get().complain("pop of nothing", kInvalidContext);
    *context = stack.back();
    stack.pop_back();
    return kSuccess;
  });
}
FAKE_API cuStreamGetCtx(Stream stream, Context* context) {
  return FORWARD("cuStreamGetCtx", stream_context(stream, context));
}
FAKE_API cuThreadExchangeStreamCaptureMode(int* mode) {
  return FakeCuda::get().call("cuThreadExchangeStreamCaptureMode", [&] {
    std::swap(*mode, capture_mode);
    return kSuccess;
  });
}
FAKE_API cuLibraryLoadData(Library* library, const void* code, void*, void*, unsigned, void*,
                           void**, unsigned) {
  return FORWARD("cuLibraryLoadData", load(library, code));
}
FAKE_API cuLibraryUnload(Library library) { return FORWARD("cuLibraryUnload", unload(library)); }
FAKE_API cuLibraryGetKernel(Kernel* kernel, Library library, const char* name) {
  return FORWARD("cuLibraryGetKernel", get_kernel(kernel, library, name));
}
FAKE_API cuKernelGetFunction(Function* function, Kernel kernel) {
  return FORWARD("cuKernelGetFunction", get_function(function, kernel));
}
FAKE_API cuKernelSetAttribute(int attribute, int value, Kernel kernel, Device device) {
  return FORWARD("cuKernelSetAttribute", set_attribute(attribute, value, kernel, device));
}
FAKE_API cuLaunchKernelEx(const LaunchConfig* config, Function function, void** arguments,
                          void** extra) {
  FakeCuda& fake = FakeCuda::get();
  return fake.call("cuLaunchKernelEx", [&]() -> Result {
    if (extra != nullptr) return fake.complain("extra launch options", kInvalidValue);
    return fake.launch(*config, function, arguments);
  });
}
FAKE_API cuTensorMapEncodeTiled(TensorMap* map, int type, uint32_t rank, void* address,
                                const uint64_t* sizes, const uint64_t* strides, const uint32_t* box,
                                const uint32_t* element_strides, int interleave, int swizzle,
                                int l2_promotion, int fill) {
  return FakeCuda::get().call("cuTensorMapEncodeTiled", [&] {
    return encode_map(map, type, rank, address, sizes, strides, box, element_strides, interleave,
                      swizzle, l2_promotion, fill);
  });
}

// What the runtime does not call, and aotbuild doctor does.

FAKE_API cuCtxSetCurrent(Context context) {
  return FakeCuda::get().call("cuCtxSetCurrent", [&] {
    stack = {context};
    return kSuccess;
  });
}
FAKE_API cuCtxSynchronize() {
  return FakeCuda::get().call(
      "cuCtxSynchronize", []() -> Result { return stack.empty() ? kInvalidContext : kSuccess; });
}
FAKE_API cuMemAlloc_v2(uint64_t* address, size_t size) {
  if (stack.empty()) return kInvalidContext;
  *address = reinterpret_cast<uintptr_t>(FakeCuda::get().allocate(size));
  return kSuccess;
}
FAKE_API cuMemFree_v2(uint64_t address) {
  return FakeCuda::get().release(reinterpret_cast<void*>(address)) ? kSuccess : kInvalidValue;
}
FAKE_API cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t size) {
  auto* device = reinterpret_cast<void*>(to);
  return FakeCuda::get().copy(device, from, size, device) ? kSuccess : kInvalidValue;
}
FAKE_API cuMemcpyDtoH_v2(void* to, uint64_t from, size_t size) {
  auto* device = reinterpret_cast<const void*>(from);
  return FakeCuda::get().copy(to, device, size, device) ? kSuccess : kInvalidValue;
}
