// A library: a search path, the packs found on it, and what was loaded from them on each device.
//
// Everything here is made once and read for ever after. Readers follow pointers that are published
// atomically and take no lock; a lock is held only to make one thing: a device's state, one pack,
// one image.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "driver.h"
#include "pack.h"
#include "search.h"

namespace aotbuild {

// A pack file on the search path, opened when the order first comes to it. Failures are not
// remembered: the file may be repaired.
class Candidate {
 public:
  Candidate(std::string path, std::string origin, std::string_view arch, std::string_view family)
      : path_(std::move(path)), origin_(std::move(origin)), arch_(arch), family_(family) {}
  ~Candidate() { delete pack_.load(std::memory_order_relaxed); }

  const std::string& path() const { return path_; }
  const std::string& origin() const { return origin_; }
  // Throws what Pack::open does, and PACK_ARCH when the file is not what its path says.
  const Pack& pack();

 private:
  const std::string path_;
  const std::string origin_;
  const std::string arch_;
  const std::string family_;
  std::mutex mutex_;
  std::atomic<const Pack*> pack_{nullptr};
};

// All packs of one family for one arch, in the order of the search path.
struct FamilyPacks {
  std::string arch;
  std::string family;
  std::vector<std::unique_ptr<Candidate>> candidates;
  FamilyPacks* next = nullptr;
};

// An image on one device.
struct ImageSlot {
  std::mutex mutex;
  std::atomic<bool> loaded{false};
  Kernel kernel;  // once loaded
};

// A candidate as one device uses it.
struct DevicePack {
  explicit DevicePack(Candidate& file) : candidate(file) {}
  ~DevicePack() { delete[] slots.load(std::memory_order_relaxed); }

  Candidate& candidate;
  std::mutex mutex;
  size_t slot_count = 0;                   // one per image of the pack; set before
  std::atomic<ImageSlot*> slots{nullptr};  // these are, when an image is first needed
};

struct DeviceFamily {
  std::string family;
  std::vector<std::unique_ptr<DevicePack>> packs;
  DeviceFamily* next = nullptr;
};

struct DeviceState {
  DeviceState(Driver& owner, int32_t number) : driver(owner), id(number), info(owner.device(id)) {}
  ~DeviceState();

  Driver& driver;
  const int32_t id;
  const DeviceInfo info;
  std::mutex mutex;
  std::atomic<DeviceFamily*> families{nullptr};
};

// The image's kernel on the device, loaded the first time. `stream` is only checked.
const Kernel& load_image(DeviceState& device, DevicePack& pack, const format::Image& image,
                         aotbuild_stream stream);

}  // namespace aotbuild

struct aotbuild_library {
 public:
  explicit aotbuild_library(const aotbuild_open_options* options);
  ~aotbuild_library();
  aotbuild_library(const aotbuild_library&) = delete;
  aotbuild_library& operator=(const aotbuild_library&) = delete;

  // Throws what the driver does, INVALID_ARGUMENT for a device number out of range.
  aotbuild::DeviceState& device(int32_t type, int32_t id);
  // Packs of a family for the device's arch, never none. Throws NO_PACK, which is not remembered:
  // the next call looks again.
  aotbuild::DeviceFamily& family(aotbuild::DeviceState& device, std::string_view family);

  const std::vector<aotbuild::SearchEntry>& search_path() const { return path_; }
  // Text for aotbuild_describe.
  std::string describe(const char* arch) const;

 private:
  static constexpr int32_t kMaxDevices = 256;

  aotbuild::FamilyPacks& packs(const std::string& arch, std::string_view family);
  [[noreturn]] void throw_no_pack(const std::string& arch, std::string_view family) const;

  const std::vector<aotbuild::SearchEntry> path_;
  std::mutex mutex_;                        // held to make a device's state or to look for packs
  aotbuild::FamilyPacks* packs_ = nullptr;  // guarded by mutex_
  std::atomic<aotbuild::DeviceState*> cuda_[kMaxDevices] = {};
  std::atomic<aotbuild::DeviceState*> rocm_[kMaxDevices] = {};
};
