#include "library.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "error.h"

namespace aotbuild {
namespace {

constexpr std::string_view kPackSuffix = ".aotpack";

// Whether there is something to open. When that cannot be told (no permission, say) there is, so
// that opening it reports why and nothing is passed over in silence.
bool exists(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

// Names become parts of paths, so they are held to what packs use.
void check_name(const char* what, std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  if (name.empty() || !std::all_of(name.begin(), name.end(), allowed)) {
    throw Error(AOTBUILD_ERROR_INVALID_ARGUMENT,
                std::string(what) + " is \"" + std::string(name) +
                    "\"; expected lower-case letters, digits and _");
  }
}

std::string pack_path(const SearchEntry& entry, std::string_view arch, std::string_view family) {
  std::string path = entry.directory;
  path.append("/").append(arch).append("/").append(family).append(kPackSuffix);
  return path;
}

std::unique_ptr<const Pack> open_pack(const std::string& path, const std::string& arch,
                                      const std::string& family) {
  std::unique_ptr<const Pack> pack = Pack::open(path);
  if (pack->arch() != arch || pack->family() != family) {
    const std::string inside = std::string(pack->arch()) + "/" + std::string(pack->family());
    throw Error(AOTBUILD_ERROR_PACK_ARCH, path + " holds " + inside + "; its place says " + arch +
                                              "/" + family + ". Move it to <directory>/" + inside +
                                              std::string(kPackSuffix));
  }
  return pack;
}

ImageSlot* slots_of(DevicePack& pack) {
  if (ImageSlot* slots = pack.slots.load(std::memory_order_acquire)) return slots;
  const std::lock_guard<std::mutex> lock(pack.mutex);
  ImageSlot* slots = pack.slots.load(std::memory_order_relaxed);
  if (slots == nullptr) {
    pack.slot_count = pack.candidate.pack().images().size();
    slots = new ImageSlot[pack.slot_count];
    pack.slots.store(slots, std::memory_order_release);
  }
  return slots;
}

void unload_all(DeviceState& device, DevicePack& pack) {
  ImageSlot* slots = pack.slots.load(std::memory_order_acquire);
  if (slots == nullptr) return;
  for (size_t i = 0; i < pack.slot_count; ++i) {
    if (slots[i].loaded.load(std::memory_order_acquire)) {
      device.driver.unload(device.id, slots[i].kernel);
    }
  }
}

// Families that a directory holds packs of, sorted.
std::vector<std::string> families_in(const std::string& directory) {
  std::vector<std::string> families;
  const std::unique_ptr<DIR, int (*)(DIR*)> handle(opendir(directory.c_str()), closedir);
  if (handle == nullptr) return families;
  while (const dirent* entry = readdir(handle.get())) {
    const std::string_view name = entry->d_name;
    if (name.size() <= kPackSuffix.size()) continue;
    const size_t stem = name.size() - kPackSuffix.size();
    if (name.substr(stem) == kPackSuffix) families.emplace_back(name.substr(0, stem));
  }
  std::sort(families.begin(), families.end());
  return families;
}

std::string describe_pack(const SearchEntry& entry, const std::string& arch,
                          const std::string& family) {
  const std::string path = pack_path(entry, arch, family);
  try {
    const std::unique_ptr<const Pack> pack = open_pack(path, arch, family);
    return path + ": " + std::to_string(pack->images().size()) + " images, made by " +
           std::string(pack->string(pack->header().producer));
  } catch (const Error& error) {
    return path + ": cannot be used: " + error.message();
  }
}

template <class Node>
void delete_list(Node* node) {
  while (node != nullptr) delete std::exchange(node, node->next);
}

}  // namespace

const Pack& Candidate::pack() {
  if (const Pack* pack = pack_.load(std::memory_order_acquire)) return *pack;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const Pack* pack = pack_.load(std::memory_order_relaxed)) return *pack;
  const Pack* pack = open_pack(path_, arch_, family_).release();
  pack_.store(pack, std::memory_order_release);
  return *pack;
}

DeviceState::~DeviceState() {
  DeviceFamily* family = families.load(std::memory_order_acquire);
  for (DeviceFamily* node = family; node != nullptr; node = node->next) {
    for (const auto& pack : node->packs) unload_all(*this, *pack);
  }
  delete_list(family);
}

const Kernel& load_image(DeviceState& device, DevicePack& pack, const format::Image& image,
                         aotbuild_stream stream) {
  const Pack& file = pack.candidate.pack();
  ImageSlot& slot = slots_of(pack)[&image - file.images().begin()];
  if (slot.loaded.load(std::memory_order_acquire)) return slot.kernel;
  device.driver.check_stream(device.id, stream);
  const std::lock_guard<std::mutex> lock(slot.mutex);
  if (!slot.loaded.load(std::memory_order_relaxed)) {
    const std::vector<uint8_t> code = file.inflate(image);
    slot.kernel = device.driver.load(device.id, code.data(), code.size(),
                                     std::string(file.string(image.symbol)), image.shared);
    slot.loaded.store(true, std::memory_order_release);
  }
  return slot.kernel;
}

}  // namespace aotbuild

using aotbuild::Candidate;
using aotbuild::DeviceFamily;
using aotbuild::DevicePack;
using aotbuild::DeviceState;
using aotbuild::Error;
using aotbuild::FamilyPacks;
using aotbuild::SearchEntry;

aotbuild_library::aotbuild_library(const aotbuild_open_options* options)
    : path_(aotbuild::search_path(options)) {}

aotbuild_library::~aotbuild_library() {
  for (int32_t i = 0; i < kMaxDevices; ++i) {
    delete cuda_[i].load(std::memory_order_acquire);
    delete rocm_[i].load(std::memory_order_acquire);
  }
  aotbuild::delete_list(packs_);
}

DeviceState& aotbuild_library::device(int32_t type, int32_t id) {
  aotbuild::Driver& driver = aotbuild::Driver::of(type);
  if (id < 0 || id >= kMaxDevices) {
    throw Error(
        AOTBUILD_ERROR_INVALID_ARGUMENT,
        "device number " + std::to_string(id) + " is not in 0.." + std::to_string(kMaxDevices - 1));
  }
  auto& place = type == aotbuild::kDeviceCuda ? cuda_[id] : rocm_[id];
  if (DeviceState* state = place.load(std::memory_order_acquire)) return *state;
  auto state = std::make_unique<DeviceState>(driver, id);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (DeviceState* first = place.load(std::memory_order_relaxed)) return *first;
  place.store(state.get(), std::memory_order_release);
  return *state.release();
}

FamilyPacks& aotbuild_library::packs(const std::string& arch, std::string_view family) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (FamilyPacks* node = packs_; node != nullptr; node = node->next) {
    if (node->arch == arch && node->family == family) return *node;
  }
  auto found = std::make_unique<FamilyPacks>();
  found->arch = arch;
  found->family = family;
  for (const SearchEntry& entry : path_) {
    std::string path = aotbuild::pack_path(entry, arch, family);
    if (!aotbuild::exists(path)) continue;
    found->candidates.push_back(
        std::make_unique<Candidate>(std::move(path), entry.origin, arch, family));
  }
  if (found->candidates.empty()) throw_no_pack(arch, family);
  found->next = packs_;
  packs_ = found.get();
  return *found.release();
}

DeviceFamily& aotbuild_library::family(DeviceState& device, std::string_view family) {
  for (DeviceFamily* node = device.families.load(std::memory_order_acquire); node != nullptr;
       node = node->next) {
    if (node->family == family) return *node;
  }
  aotbuild::check_name("the family", family);
  FamilyPacks& packs = this->packs(device.info.arch, family);
  const std::lock_guard<std::mutex> lock(device.mutex);
  DeviceFamily* first = device.families.load(std::memory_order_relaxed);
  for (DeviceFamily* node = first; node != nullptr; node = node->next) {
    if (node->family == family) return *node;
  }
  auto made = std::make_unique<DeviceFamily>();
  made->family = family;
  for (const auto& candidate : packs.candidates) {
    made->packs.push_back(std::make_unique<DevicePack>(*candidate));
  }
  made->next = first;
  device.families.store(made.get(), std::memory_order_release);
  return *made.release();
}

void aotbuild_library::throw_no_pack(const std::string& arch, std::string_view family) const {
  std::string message =
      "no pack of family " + std::string(family) + " for " + arch + " was found. Tried:";
  for (const SearchEntry& entry : path_) {
    message += "\n  " + aotbuild::pack_path(entry, arch, family) + " (" + entry.origin + ")";
  }
  if (path_.empty()) message += "\n  nothing: the search path is empty";
  message += "\nMake one with `aotbuild compile --arch " + arch +
             "`, or set AOTBUILD_IMAGE_PATH to the directory that holds " + arch + "/" +
             std::string(family) + std::string(aotbuild::kPackSuffix);
  throw Error(AOTBUILD_ERROR_NO_PACK, std::move(message));
}

std::string aotbuild_library::describe(const char* arch) const {
  std::string text = "search path, the first pack that holds an image wins:\n";
  for (const SearchEntry& entry : path_) {
    const bool missing = !aotbuild::exists(entry.directory);
    text += "  " + entry.directory + " (" + entry.origin + ")" +
            (missing ? ": does not exist\n" : "\n");
  }
  if (arch == nullptr) return text;
  aotbuild::check_name("the arch", arch);
  text += "packs for " + std::string(arch) + ":\n";
  const size_t before = text.size();
  for (const SearchEntry& entry : path_) {
    for (const std::string& family : aotbuild::families_in(entry.directory + "/" + arch)) {
      text += "  " + aotbuild::describe_pack(entry, arch, family) + "\n";
    }
  }
  if (text.size() == before) {
    text += "  none. Make one with `aotbuild compile --arch " + std::string(arch) + "`\n";
  }
  return text;
}
