// aotbuild for C++17: the C ABI of aotbuild.h with exceptions, and objects that clean up.
// Header only, so that nothing of a C++ library's ABI lies between a host and libaotbuild.
#ifndef AOTBUILD_AOTBUILD_HPP_
#define AOTBUILD_AOTBUILD_HPP_

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "aotbuild/aotbuild.h"

namespace aotbuild {
// Two copies of different versions of this header may meet in one program.
inline namespace abi0 {

static_assert(AOTBUILD_ABI_VERSION == 0, "name the inline namespace after the ABI");

class Error : public std::runtime_error {
 public:
  Error(aotbuild_status status, const std::string& message)
      : std::runtime_error(std::string(aotbuild_status_name(status)) + ": " + message),
        status_(status) {}
  aotbuild_status status() const noexcept { return status_; }

 private:
  aotbuild_status status_;
};

// Throws Error with the calling thread's message unless `status` is AOTBUILD_OK.
inline void check(aotbuild_status status) {
  if (status != AOTBUILD_OK) throw Error(status, aotbuild_last_error());
}

// Arch of a device as packs name it, by DLPack device type and number.
inline std::string device_arch(int32_t device_type, int32_t device_id) {
  char arch[32];
  check(aotbuild_device_arch(device_type, device_id, arch, sizeof(arch)));
  return arch;
}

// Owns an aotbuild_library. Safe to use from many threads, like that.
class Library {
 public:
  // `paths` are searched first; with `paths_only`, nothing else is.
  explicit Library(const std::vector<std::string>& paths = {}, bool paths_only = false) {
    std::vector<const char*> pointers;
    pointers.reserve(paths.size());
    for (const std::string& path : paths) pointers.push_back(path.c_str());
    aotbuild_open_options options = AOTBUILD_INIT(aotbuild_open_options);
    options.paths = pointers.data();
    options.path_count = pointers.size();
    options.paths_only = paths_only ? 1 : 0;
    check(aotbuild_open(&options, &handle_));
  }
  ~Library() { aotbuild_close(handle_); }
  Library(Library&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Library& operator=(Library&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  aotbuild_library* get() const noexcept { return handle_; }

  void attention_forward(const aotbuild_attention_forward_args& args) const {
    check(aotbuild_attention_forward(handle_, &args));
  }
  aotbuild_launch_info query(const aotbuild_attention_forward_args& args) const {
    aotbuild_launch_info info = AOTBUILD_INIT(aotbuild_launch_info);
    check(aotbuild_attention_forward_query(handle_, &args, &info));
    return info;
  }
  void attention_backward(const aotbuild_attention_backward_args& args) const {
    check(aotbuild_attention_backward(handle_, &args));
  }
  aotbuild_launch_info query(const aotbuild_attention_backward_args& args) const {
    aotbuild_launch_info info = AOTBUILD_INIT(aotbuild_launch_info);
    check(aotbuild_attention_backward_query(handle_, &args, &info));
    return info;
  }

  // Any operator of any pack.
  void launch(const aotbuild_launch_args& args) const { check(aotbuild_launch(handle_, &args)); }
  aotbuild_launch_info query(const aotbuild_launch_args& args) const {
    aotbuild_launch_info info = AOTBUILD_INIT(aotbuild_launch_info);
    check(aotbuild_query(handle_, &args, &info));
    return info;
  }

  // The search path, and the packs found for `arch` unless it is null.
  std::string describe(const char* arch = nullptr) const {
    std::string text;
    size_t needed = 0;
    check(aotbuild_describe(handle_, arch, nullptr, 0, &needed));
    // Packs may come and go between the two calls.
    while (text.size() < needed) {
      text.resize(needed);
      check(aotbuild_describe(handle_, arch, text.data(), text.size(), &needed));
    }
    text.resize(needed - 1);
    return text;
  }

 private:
  aotbuild_library* handle_ = nullptr;
};

}  // namespace abi0
}  // namespace aotbuild

#endif  // AOTBUILD_AOTBUILD_HPP_
