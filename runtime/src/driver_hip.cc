// HIP: libamdhip64.so of ROCm 5 to 7.
#include <string>

#include "driver.h"
#include "dynamic_library.h"
#include "error.h"
#include "hip_abi.h"
#include "tdm.h"

namespace aotbuild {
namespace {

constexpr const char* kLibraryNames[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                         "libamdhip64.so"};

// Calls of the driver, checked.
class HipApi : public hip::Api {
 public:
  HipApi() : Api{} {
    std::string why;
    const DynamicLibrary library = DynamicLibrary::open(kLibraryNames, &why);
    if (!library) {
      throw Error(AOTBUILD_ERROR_NO_DRIVER,
                  "cannot load AMD's HIP library libamdhip64.so:" + why +
                      "\nInstall the ROCm runtime (package hip-runtime-amd), or add its lib "
                      "directory to the loader's path (LD_LIBRARY_PATH)");
    }
#define AOTBUILD_HIP_FIND(name, symbol, result, parameters) library.find(#symbol, &(name));
    AOTBUILD_HIP_PROPERTIES(AOTBUILD_HIP_FIND)
    AOTBUILD_HIP_OPTIONAL_FUNCTIONS(AOTBUILD_HIP_FIND)
#undef AOTBUILD_HIP_FIND
#define AOTBUILD_HIP_FIND(name, symbol, result, parameters) \
  library.find(#symbol, &(name));                           \
  if ((name) == nullptr) throw_missing(library, #symbol);
    AOTBUILD_HIP_FUNCTIONS(AOTBUILD_HIP_FIND)
#undef AOTBUILD_HIP_FIND
    if (get_device_properties_r0600 == nullptr && get_device_properties == nullptr) {
      throw_missing(library, "hipGetDeviceProperties");
    }
  }

  void check(hip::Error error, const char* function, std::string_view doing) const {
    if (error == hip::kSuccess) return;
    // HIP remembers the error for the thread. It has been reported by us; left behind, a later
    // check of the host's would take it for its own.
    get_last_error();
    const char* name = get_error_name(error);
    const char* text = get_error_string(error);
    std::string message = std::string(function) + " failed while ";
    message.append(doing).append(": ").append(name != nullptr ? name : "unknown error");
    message.append(" (").append(std::to_string(error)).append(")");
    if (text != nullptr) message.append(", ").append(text);
    throw Error(AOTBUILD_ERROR_DRIVER, std::move(message));
  }

 private:
  [[noreturn]] static void throw_missing(const DynamicLibrary& library, const char* symbol) {
    throw Error(AOTBUILD_ERROR_NO_DRIVER, std::string(library.name()) + " has no function " +
                                              symbol + ". Update ROCm to 5.2 or newer");
  }
};

// Makes a device current for a scope, unless it is already.
class CurrentDevice {
 public:
  CurrentDevice(const HipApi& api, int wanted) : api_(api), wanted_(wanted) {
    api_.check(api_.get_device(&previous_), "hipGetDevice", "reading the current device");
    if (previous_ == wanted_) return;
    api_.check(api_.set_device(wanted_), "hipSetDevice", "entering a device");
  }
  ~CurrentDevice() {
    if (previous_ != wanted_) api_.set_device(previous_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  const HipApi& api_;
  int wanted_;
  int previous_ = 0;
};

// Loading allocates device memory, which a stream capture elsewhere in the process forbids unless
// the thread says that it takes no part in it. Loads belong to no stream, so that is the truth.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const HipApi& api) : api_(api) {
    if (api_.thread_exchange_stream_capture_mode == nullptr) return;
    api_.check(api_.thread_exchange_stream_capture_mode(&mode_),
               "hipThreadExchangeStreamCaptureMode", "loading an image");
  }
  ~RelaxedCapture() {
    if (api_.thread_exchange_stream_capture_mode == nullptr) return;
    api_.thread_exchange_stream_capture_mode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const HipApi& api_;
  int mode_ = hip::kCaptureRelaxed;
};

class HipDriver final : public Driver {
 public:
  HipDriver() {
    api_.check(api_.get_device_count(&device_count_), "hipGetDeviceCount", "counting devices");
  }
  DeviceInfo device(int32_t id) override;
  void check_stream(int32_t id, aotbuild_stream stream) override;
  Kernel load(int32_t id, const void* code, size_t size, const std::string& symbol,
              uint32_t shared) override;
  void unload(int32_t id, Kernel kernel) noexcept override;
  size_t encode(const format::Descriptor& descriptor, const aotbuild_tensor& tensor,
                void* bytes) override {
    return encode_tdm(descriptor, tensor, bytes);
  }
  void launch(int32_t id, aotbuild_stream stream, const Kernel& kernel, const LaunchConfig& config,
              void** arguments) override;

 private:
  void check_device(int32_t id) const;
  int attribute(int32_t id, hip::DeviceAttribute attribute) const;
  std::string arch(int32_t id) const;
  void launch_cluster(hip::Stream stream, hip::Function function, const LaunchConfig& config,
                      void** arguments) const;
  void launch_cooperative(hip::Stream stream, hip::Function function, const LaunchConfig& config,
                          void** arguments) const;

  const HipApi api_;
  int device_count_ = 0;
};

void HipDriver::check_device(int32_t id) const {
  if (id < 0 || id >= device_count_) {
    throw Error(AOTBUILD_ERROR_INVALID_ARGUMENT, "there is no ROCm device " + std::to_string(id) +
                                                     ": HIP shows " +
                                                     std::to_string(device_count_));
  }
}

int HipDriver::attribute(int32_t id, hip::DeviceAttribute attribute) const {
  int value = 0;
  api_.check(api_.device_get_attribute(&value, attribute, id), "hipDeviceGetAttribute",
             "reading attribute " + std::to_string(attribute) + " of device " + std::to_string(id));
  return value;
}

// HIP spells the arch with the features it is set to, gfx942:sramecc+:xnack-; packs do not.
std::string HipDriver::arch(int32_t id) const {
  const std::string doing = "reading the arch of device " + std::to_string(id);
  alignas(std::max_align_t) char properties[hip::kPropertiesBytes] = {};
  size_t offset = 0;
  if (api_.get_device_properties_r0600 != nullptr) {
    api_.check(api_.get_device_properties_r0600(properties, id), "hipGetDevicePropertiesR0600",
               doing);
    offset = hip::kArchNameOffsetR0600;
  } else {
    api_.check(api_.get_device_properties(properties, id), "hipGetDeviceProperties", doing);
    offset = hip::kArchNameOffset;
  }
  const std::string_view field(properties + offset, hip::kArchNameBytes);
  return std::string(field.substr(0, field.find_first_of(std::string_view(":\0", 2))));
}

DeviceInfo HipDriver::device(int32_t id) {
  check_device(id);
  DeviceInfo info;
  info.arch = arch(id);
  info.multiprocessors = static_cast<uint32_t>(attribute(id, hip::kMultiprocessorCount));
  info.max_shared = static_cast<uint32_t>(attribute(id, hip::kMaxSharedPerBlock));
  info.cooperative = attribute(id, hip::kCooperativeLaunch) != 0;
  return info;
}

// Null, legacy (1) and per-thread (2) belong to whatever device is current, which launch() makes
// the right one. ROCm 5.2 cannot tell a stream's device; its launch refuses a foreign stream.
void HipDriver::check_stream(int32_t id, aotbuild_stream stream) {
  check_device(id);
  if (reinterpret_cast<uintptr_t>(stream) <= 2 || api_.stream_get_device == nullptr) return;
  int device = 0;
  api_.check(api_.stream_get_device(static_cast<hip::Stream>(stream), &device),
             "hipStreamGetDevice", "finding the stream's device");
  if (device != id) {
    throw Error(AOTBUILD_ERROR_INVALID_ARGUMENT,
                "the stream belongs to ROCm device " + std::to_string(device) +
                    ", but the tensors are on device " + std::to_string(id) +
                    ": pass a stream of the tensors' device");
  }
}

Kernel HipDriver::load(int32_t id, const void* code, size_t /*size*/, const std::string& symbol,
                       uint32_t /*shared*/) {
  const std::string doing = "loading " + symbol + " on ROCm device " + std::to_string(id);
  const CurrentDevice current(api_, id);
  const RelaxedCapture relaxed(api_);
  hip::Module module = nullptr;
  api_.check(api_.module_load_data(&module, code), "hipModuleLoadData", doing);
  try {
    hip::Function function = nullptr;
    api_.check(api_.module_get_function(&function, module, symbol.c_str()), "hipModuleGetFunction",
               doing);
    return Kernel{module, function};
  } catch (...) {
    api_.module_unload(module);
    throw;
  }
}

// Errors are of no use to anyone here; one is normal: at exit the driver may be gone already.
void HipDriver::unload(int32_t /*id*/, Kernel kernel) noexcept {
  if (api_.module_unload(static_cast<hip::Module>(kernel.module)) != hip::kSuccess) {
    api_.get_last_error();
  }
}

void HipDriver::launch_cluster(hip::Stream stream, hip::Function function,
                               const LaunchConfig& config, void** arguments) const {
  if (api_.drv_launch_kernel_ex == nullptr) {
    throw Error(AOTBUILD_ERROR_UNSUPPORTED,
                "the image launches clusters of blocks, which this version of HIP cannot "
                "(hipDrvLaunchKernelEx is missing). Update ROCm");
  }
  hip::LaunchAttribute attributes[2] = {};
  attributes[0].id = hip::kAttributeClusterDimension;
  attributes[0].value.cluster = {config.cluster[0], config.cluster[1], config.cluster[2]};
  attributes[1].id = hip::kAttributeCooperative;
  attributes[1].value.cooperative = 1;
  const hip::LaunchConfig native = {config.grid[0],
                                    config.grid[1],
                                    config.grid[2],
                                    config.threads,
                                    1,
                                    1,
                                    config.shared,
                                    stream,
                                    attributes,
                                    config.cooperative ? 2U : 1U};
  api_.check(api_.drv_launch_kernel_ex(&native, function, arguments, nullptr),
             "hipDrvLaunchKernelEx", "launching");
}

void HipDriver::launch_cooperative(hip::Stream stream, hip::Function function,
                                   const LaunchConfig& config, void** arguments) const {
  if (api_.module_launch_cooperative_kernel == nullptr) {
    throw Error(AOTBUILD_ERROR_UNSUPPORTED,
                "the image needs a cooperative launch, which this version of HIP cannot "
                "(hipModuleLaunchCooperativeKernel is missing). Update ROCm");
  }
  api_.check(api_.module_launch_cooperative_kernel(function, config.grid[0], config.grid[1],
                                                   config.grid[2], config.threads, 1, 1,
                                                   config.shared, stream, arguments),
             "hipModuleLaunchCooperativeKernel", "launching");
}

// config.programmatic is a permission to overlap with the kernel before, which HIP has no way to
// grant; running after it, as HIP does, is always right.
void HipDriver::launch(int32_t id, aotbuild_stream stream, const Kernel& kernel,
                       const LaunchConfig& config, void** arguments) {
  if (uint64_t{config.grid[0]} * config.threads > UINT32_MAX) {
    throw Error(AOTBUILD_ERROR_UNSUPPORTED,
                "the call needs " + std::to_string(config.grid[0]) + " blocks of " +
                    std::to_string(config.threads) +
                    " threads in x; HIP launches less than 2^32 threads. Split the call");
  }
  check_stream(id, stream);
  const CurrentDevice current(api_, id);
  auto* const native_stream = static_cast<hip::Stream>(stream);
  auto* const function = static_cast<hip::Function>(kernel.function);
  if (config.cluster[0] * config.cluster[1] * config.cluster[2] > 1) {
    launch_cluster(native_stream, function, config, arguments);
  } else if (config.cooperative) {
    launch_cooperative(native_stream, function, config, arguments);
  } else {
    api_.check(api_.module_launch_kernel(function, config.grid[0], config.grid[1], config.grid[2],
                                         config.threads, 1, 1, config.shared, native_stream,
                                         arguments, nullptr),
               "hipModuleLaunchKernel", "launching");
  }
}

}  // namespace

Driver& hip_driver() {
  static HipDriver* const driver = new HipDriver;  // for ever: see DynamicLibrary
  return *driver;
}

}  // namespace aotbuild
