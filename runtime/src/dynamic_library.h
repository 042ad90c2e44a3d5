// A driver library, opened with dlopen.
#pragma once

#include <dlfcn.h>

#include <string>

namespace aotbuild {

// Never closed: a driver has threads and exit handlers of its own, and cannot be unloaded safely.
class DynamicLibrary {
 public:
  // Takes the first of `names` that the process has loaded already, so that a host's own driver
  // wins; failing that the first that can be loaded. When none can, the result is empty and
  // `*why` is what the loader said about each.
  template <size_t N>
  static DynamicLibrary open(const char* const (&names)[N], std::string* why) {
    for (const char* name : names) {
      if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) {
        return DynamicLibrary(handle, name);
      }
    }
    for (const char* name : names) {
      if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return DynamicLibrary(handle, name);
      const char* reason = dlerror();
      why->append("\n  ").append(reason != nullptr ? reason : name);
    }
    return DynamicLibrary(nullptr, "");
  }

  explicit operator bool() const { return handle_ != nullptr; }
  const char* name() const { return name_; }

  // Null when the library has no such symbol.
  template <class Function>
  void find(const char* symbol, Function** function) const {
    *function = reinterpret_cast<Function*>(dlsym(handle_, symbol));
  }

 private:
  DynamicLibrary(void* handle, const char* name) : handle_(handle), name_(name) {}

  void* handle_;
  const char* name_;
};

}  // namespace aotbuild
