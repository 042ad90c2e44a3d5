// What the stand-ins for libcuda and libamdhip64 have in common, and how tests steer them.
//
// A stand-in implements the driver functions that the runtime uses on two devices that do not
// exist. It is stricter than a driver: whatever a real one would let pass or crash on is refused
// and noted as a complaint, and every launch is recorded with a copy of its arguments.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace aotbuild::test {

inline constexpr int kFakeDevices = 2;

struct RecordedLaunch {
  int device = -1;
  void* stream = nullptr;
  void* context = nullptr;  // current at the launch (CUDA)
  std::string symbol;
  std::vector<unsigned> grid;
  std::vector<unsigned> block;
  unsigned shared = 0;
  std::vector<unsigned> cluster;  // empty without the attribute
  bool cooperative = false;
  bool programmatic = false;
  bool spread = false;
  std::vector<std::vector<uint8_t>> arguments;
};

// Properties of the devices that tests change.
struct FakeDevice {
  std::string arch;  // HIP
  int capability = 90;
  int multiprocessors = 132;
  int shared = 48 * 1024;
  int shared_optin = 227 * 1024;
  bool cooperative = true;
};

class FakeDriver {
 public:
  virtual ~FakeDriver() = default;

  // Back to the start, except for handles that the runtime holds.
  virtual void reset() = 0;
  // A stream of a device; a context of a device, for CUDA.
  virtual void* make_stream(int device) = 0;
  virtual void* make_context(int device) = 0;
  // What is current in the calling thread: a context (CUDA), or a device's number (HIP).
  virtual void set_current(uintptr_t current) = 0;
  virtual uintptr_t current() const = 0;
  virtual int modules() const = 0;     // loaded now
  virtual int last_error() const = 0;  // of the calling thread (HIP)

  // The `nth` call from now of a function returns `code`, and does nothing.
  void fail(const std::string& function, int code, int nth = 1) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failures_[function] = {nth, code};
  }
  int calls(const std::string& function) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = calls_.find(function);
    return found == calls_.end() ? 0 : found->second;
  }
  // Bytes of each kernel argument in order; a launch copies that much.
  void set_parameters(std::vector<size_t> sizes) { parameters_ = std::move(sizes); }
  // As though a stream were being captured somewhere: loading is forbidden unless relaxed.
  void set_capturing(bool capturing) { capturing_ = capturing; }
  // Memory of the devices, which is the host's. The runtime never asks for any; aotbuild doctor
  // does.
  void* allocate(size_t size) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto block = std::make_shared<std::vector<char>>(size);
    memory_[block->data()] = block;
    return block->data();
  }
  bool release(void* address) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return memory_.erase(static_cast<char*>(address)) == 1;
  }
  // Copies, if all of the device's side lies within one allocation.
  bool copy(void* to, const void* from, size_t size, const void* on_device) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto* start = static_cast<const char*>(on_device);
    const auto found = memory_.find(const_cast<char*>(start));
    if (found == memory_.end() || size > found->second->size()) return false;
    std::memcpy(to, from, size);
    return true;
  }
  FakeDevice& device(int id) { return devices_[id]; }
  std::vector<RecordedLaunch> launches() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return launches_;
  }
  std::vector<std::string> complaints() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return complaints_;
  }

 protected:
  void reset_base(const FakeDevice& device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failures_.clear();
    calls_.clear();
    parameters_.clear();
    capturing_ = false;
    launches_.clear();
    complaints_.clear();
    for (FakeDevice& entry : devices_) entry = device;
  }
  // Counts a call. Not 0: return it.
  int enter(const char* function) {
    ++calls_[function];
    const auto found = failures_.find(function);
    if (found == failures_.end() || --found->second.first > 0) return 0;
    const int code = found->second.second;
    failures_.erase(found);
    return code;
  }
  int complain(const std::string& what, int code) {
    complaints_.push_back(what);
    return code;
  }
  std::vector<std::vector<uint8_t>> copy_arguments(void** arguments) const {
    std::vector<std::vector<uint8_t>> copies;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const auto* bytes = static_cast<const uint8_t*>(arguments[i]);
      copies.emplace_back(bytes, bytes + parameters_[i]);
    }
    return copies;
  }

  mutable std::mutex mutex_;
  std::vector<size_t> parameters_;
  bool capturing_ = false;
  FakeDevice devices_[kFakeDevices];
  std::vector<RecordedLaunch> launches_;

 private:
  std::map<std::string, std::pair<int, int>> failures_;
  std::map<std::string, int> calls_;
  std::map<char*, std::shared_ptr<std::vector<char>>> memory_;
  std::vector<std::string> complaints_;
};

// A number that the environment sets, for tests that run the stand-in in another process.
inline int environment(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::atoi(value) : otherwise;
}

// Loads a stand-in, which the runtime then finds as the driver that its process has already.
inline FakeDriver& load_fake(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  auto* control = library == nullptr
                      ? nullptr
                      : reinterpret_cast<FakeDriver* (*)()>(dlsym(library, "fake_driver"));
  if (control == nullptr) {
    std::cerr << "cannot load the stand-in " << path << ": " << dlerror() << "\n";
    std::abort();
  }
  return *control();
}

}  // namespace aotbuild::test
