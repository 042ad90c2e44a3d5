// A stand-in for libamdhip64 (see fake_driver.h): of ROCm 6, or with FAKE_HIP_5 of ROCm 5.2, which
// lays hipDeviceProp_t out otherwise and lacks some functions.
#include <algorithm>
#include <cstring>
#include <memory>

#include "fake_driver.h"
#include "hip_abi.h"

namespace aotbuild::hip {

struct StreamRecord {
  int device;
};
struct FunctionRecord {
  std::string name;
};
struct ModuleRecord {
  int device;
  std::map<std::string, std::unique_ptr<FunctionRecord>> functions;
};

namespace {

enum : int {
  kInvalidValue = 1,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidHandle = 400,
  kNotFound = 500,
  kCaptureUnsupported = 900,
};

thread_local int current_device = 0;
thread_local int sticky = 0;  // what hipGetLastError gives
thread_local int capture_mode = 0;

struct Shape {
  std::vector<unsigned> grid;
  std::vector<unsigned> block;
  unsigned shared;
  Stream stream;
};

class FakeHip final : public test::FakeDriver {
 public:
  FakeHip() { reset(); }
  static FakeHip& get() {
    static auto* const fake = new FakeHip;  // outlives whatever unloads at exit
    return *fake;
  }

  void reset() override {
    test::FakeDevice device;
    const char* arch = std::getenv("FAKE_HIP_ARCH");
    device.arch = arch != nullptr ? arch : "gfx942:sramecc+:xnack-";
    device.multiprocessors = 304;
    device.shared = 64 * 1024;
    reset_base(device);
    current_device = 0;
    sticky = 0;
    capture_mode = 0;
  }
  void* make_stream(int device) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    streams_.push_back(std::make_unique<StreamRecord>(StreamRecord{device}));
    return streams_.back().get();
  }
  void* make_context(int) override { return nullptr; }
  void set_current(uintptr_t current) override { current_device = static_cast<int>(current); }
  uintptr_t current() const override { return static_cast<uintptr_t>(current_device); }
  int modules() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return static_cast<int>(modules_.size());
  }
  int last_error() const override { return sticky; }

  template <class Body>
  Error call(const char* function, const Body& body) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Error injected = enter(function);
    const Error error = injected != 0 ? injected : body();
    if (error != 0) sticky = error;
    return error;
  }

  Error set_device(int device) {
    if (device < 0 || device >= test::kFakeDevices) {
      return complain("hipSetDevice of no device", kInvalidDevice);
    }
    current_device = device;
    return kSuccess;
  }
  Error attribute(int* value, int attribute, int id) {
    const test::FakeDevice& device = devices_[id];
    switch (attribute) {
      case kCooperativeLaunch:
        *value = device.cooperative ? 1 : 0;
        return kSuccess;
      case kMultiprocessorCount:
        *value = device.multiprocessors;
        return kSuccess;
      case kMaxSharedPerBlock:
        *value = device.shared;
        return kSuccess;
      default:
        return complain("unknown attribute " + std::to_string(attribute), kInvalidValue);
    }
  }
  Error properties(void* properties, int id, size_t offset) {
    std::strcpy(static_cast<char*>(properties) + offset, devices_[id].arch.c_str());
    return kSuccess;
  }
  Error load(Module* module, const void* code) {
    if (capturing_ && capture_mode != kCaptureRelaxed) return kCaptureUnsupported;
    if (std::memcmp(code,
                    "\x7f"
                    "ELF",
                    4) != 0)
      return complain("not an ELF", kInvalidImage);
    modules_.push_back(std::make_unique<ModuleRecord>(ModuleRecord{current_device, {}}));
    *module = modules_.back().get();
    return kSuccess;
  }
  Error unload(Module module) {
    const auto found = std::find_if(modules_.begin(), modules_.end(),
                                    [&](const auto& entry) { return entry.get() == module; });
    if (found == modules_.end()) return complain("unload of no module", kInvalidHandle);
    modules_.erase(found);
    return kSuccess;
  }
  Error get_function(Function* function, Module module, const std::string& name) {
    if (name.compare(0, 7, "missing") == 0) return kNotFound;
    auto& entry = module->functions[name];
    if (entry == nullptr) entry = std::make_unique<FunctionRecord>(FunctionRecord{name});
    *function = entry.get();
    return kSuccess;
  }
  Error launch(Function function, const Shape& shape, void** arguments,
               test::RecordedLaunch launch) {
    const ModuleRecord* module = owner(function);
    if (module == nullptr) return complain("launch of no function", kInvalidHandle);
    if (module->device != current_device) {
      return complain("launch on another device than the module's", kInvalidDevice);
    }
    if (reinterpret_cast<uintptr_t>(shape.stream) > 2 && shape.stream->device != current_device) {
      return complain("launch on another device than the stream's", kInvalidHandle);
    }
    if (shape.grid[0] == 0 || shape.grid[1] == 0 || shape.grid[2] == 0 ||
        uint64_t{shape.grid[0]} * shape.block[0] > UINT32_MAX || shape.block[0] > 1024 ||
        shape.shared > static_cast<unsigned>(devices_[current_device].shared)) {
      return complain("an impossible launch", kInvalidValue);
    }
    launch.device = current_device;
    launch.stream = shape.stream;
    launch.symbol = function->name;
    launch.grid = shape.grid;
    launch.block = shape.block;
    launch.shared = shape.shared;
    launch.arguments = copy_arguments(arguments);
    launches_.push_back(std::move(launch));
    return kSuccess;
  }
  bool is_stream(Stream stream) const {
    return std::any_of(streams_.begin(), streams_.end(),
                       [&](const auto& entry) { return entry.get() == stream; });
  }
  using FakeDriver::complain;

 private:
  const ModuleRecord* owner(Function function) const {
    for (const auto& module : modules_) {
      for (const auto& entry : module->functions) {
        if (entry.second.get() == function) return module.get();
      }
    }
    return nullptr;
  }

  std::vector<std::unique_ptr<StreamRecord>> streams_;
  std::vector<std::unique_ptr<ModuleRecord>> modules_;
};

}  // namespace
}  // namespace aotbuild::hip

using namespace aotbuild::hip;  // NOLINT(google-build-using-namespace): C functions below
using aotbuild::test::RecordedLaunch;

// A counted call, answered by a method of the stand-in.
#define FORWARD(function, method) \
  FakeHip::get().call(function, [&] { return FakeHip::get().method; })

#define FAKE_API extern "C" __attribute__((visibility("default")))

FAKE_API aotbuild::test::FakeDriver* fake_driver() { return &FakeHip::get(); }

FAKE_API const char* hipGetErrorName(Error error) {
  return error == 700 ? "hipErrorIllegalAddress" : "hipErrorFake";
}
FAKE_API const char* hipGetErrorString(Error) { return "a fake error"; }
FAKE_API Error hipGetLastError() { return std::exchange(sticky, 0); }
FAKE_API Error hipGetDeviceCount(int* count) {
  *count = aotbuild::test::kFakeDevices;
  return FakeHip::get().call("hipGetDeviceCount",
                             [] { return aotbuild::test::environment("FAKE_HIP_COUNT", 0); });
}
FAKE_API Error hipGetDevice(int* device) {
  *device = current_device;
  return FakeHip::get().call("hipGetDevice", [] { return kSuccess; });
}
FAKE_API Error hipSetDevice(int device) { return FORWARD("hipSetDevice", set_device(device)); }
FAKE_API Error hipDeviceGetAttribute(int* value, int attribute, int device) {
  return FORWARD("hipDeviceGetAttribute", attribute(value, attribute, device));
}
FAKE_API Error hipModuleLoadData(Module* module, const void* code) {
  return FORWARD("hipModuleLoadData", load(module, code));
}
FAKE_API Error hipModuleUnload(Module module) { return FORWARD("hipModuleUnload", unload(module)); }
FAKE_API Error hipModuleGetFunction(Function* function, Module module, const char* name) {
  return FORWARD("hipModuleGetFunction", get_function(function, module, name));
}
FAKE_API Error hipModuleLaunchKernel(Function function, unsigned grid_x, unsigned grid_y,
                                     unsigned grid_z, unsigned block_x, unsigned block_y,
                                     unsigned block_z, unsigned shared, Stream stream,
                                     void** arguments, void** extra) {
  FakeHip& fake = FakeHip::get();
  return fake.call("hipModuleLaunchKernel", [&]() -> Error {
    if (extra != nullptr) return fake.complain("extra launch options", kInvalidValue);
    const Shape shape = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream};
    return fake.launch(function, shape, arguments, {});
  });
}

#ifdef FAKE_HIP_5

FAKE_API Error hipGetDeviceProperties(void* properties, int device) {
  return FORWARD("hipGetDeviceProperties", properties(properties, device, kArchNameOffset));
}

#else

FAKE_API Error hipGetDevicePropertiesR0600(void* properties, int device) {
  return FORWARD("hipGetDevicePropertiesR0600",
                 properties(properties, device, kArchNameOffsetR0600));
}
FAKE_API Error hipStreamGetDevice(Stream stream, int* device) {
  FakeHip& fake = FakeHip::get();
  return fake.call("hipStreamGetDevice", [&]() -> Error {
    if (!fake.is_stream(stream)) return fake.complain("not a stream", kInvalidHandle);
    *device = stream->device;
    return kSuccess;
  });
}
FAKE_API Error hipThreadExchangeStreamCaptureMode(int* mode) {
  return FakeHip::get().call("hipThreadExchangeStreamCaptureMode", [&] {
    std::swap(*mode, capture_mode);
    return kSuccess;
  });
}
FAKE_API Error hipModuleLaunchCooperativeKernel(Function function, unsigned grid_x, unsigned grid_y,
                                                unsigned grid_z, unsigned block_x, unsigned block_y,
                                                unsigned block_z, unsigned shared, Stream stream,
                                                void** arguments) {
  FakeHip& fake = FakeHip::get();
  return fake.call("hipModuleLaunchCooperativeKernel", [&] {
    const Shape shape = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream};
    RecordedLaunch launch;
    launch.cooperative = true;
    return fake.launch(function, shape, arguments, launch);
  });
}
FAKE_API Error hipDrvLaunchKernelEx(const LaunchConfig* config, Function function, void** arguments,
                                    void**) {
  FakeHip& fake = FakeHip::get();
  return fake.call("hipDrvLaunchKernelEx", [&] {
    const Shape shape = {{config->grid_x, config->grid_y, config->grid_z},
                         {config->block_x, config->block_y, config->block_z},
                         config->shared_bytes,
                         config->stream};
    RecordedLaunch launch;
    for (unsigned i = 0; i < config->attribute_count; ++i) {
      const LaunchAttribute& attribute = config->attributes[i];
      if (attribute.id == kAttributeCooperative) {
        launch.cooperative = attribute.value.cooperative == 1;
      } else if (attribute.id == kAttributeClusterDimension) {
        launch.cluster = {attribute.value.cluster.x, attribute.value.cluster.y,
                          attribute.value.cluster.z};
      }
    }
    return fake.launch(function, shape, arguments, launch);
  });
}

#endif

// What the runtime does not call, and aotbuild doctor does.

FAKE_API Error hipRuntimeGetVersion(int* version) {
  *version = 60342131;
  return kSuccess;
}
FAKE_API Error hipDeviceGetName(char* name, int size, int device) {
  if (device < 0 || device >= aotbuild::test::kFakeDevices || size < 8) return kInvalidValue;
  std::strcpy(name, "Fake 90");
  return kSuccess;
}
FAKE_API Error hipDeviceSynchronize() { return kSuccess; }
FAKE_API Error hipMalloc(void** address, size_t size) {
  *address = FakeHip::get().allocate(size);
  return kSuccess;
}
FAKE_API Error hipFree(void* address) {
  return FakeHip::get().release(address) ? kSuccess : kInvalidValue;
}
FAKE_API Error hipMemcpy(void* to, const void* from, size_t size, int kind) {
  constexpr int kHostToDevice = 1;
  constexpr int kDeviceToHost = 2;
  if (kind != kHostToDevice && kind != kDeviceToHost) return kInvalidValue;
  const void* device = kind == kHostToDevice ? to : from;
  return FakeHip::get().copy(to, from, size, device) ? kSuccess : kInvalidValue;
}
