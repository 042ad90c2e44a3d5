#include "elf.h"

#include <charconv>
#include <cstring>
#include <optional>
#include <system_error>

#include "error.h"

namespace aotbuild {
namespace {

constexpr size_t kHeaderSize = 64;
constexpr uint8_t kClass64 = 2;
constexpr uint8_t kLittleEndian = 1;
constexpr uint8_t kCudaAbi7 = 7;  // EI_ABIVERSION of cubins up to sm_89
constexpr uint8_t kCudaAbi8 = 8;  // ... from sm_90 on
constexpr uint16_t kMachineCuda = 190;
constexpr uint16_t kMachineAmd = 224;

// EF_AMDGPU_MACH (LLVM, User Guide for AMDGPU Backend). A test holds this against the arch table
// of aotbuild/target.py.
struct AmdMach {
  std::string_view arch;
  uint32_t mach;
};
constexpr AmdMach kAmdMachs[] = {
    {"gfx90a", 0x3F},  {"gfx942", 0x4C},  {"gfx950", 0x4F},  {"gfx1100", 0x41}, {"gfx1101", 0x46},
    {"gfx1102", 0x47}, {"gfx1103", 0x44}, {"gfx1150", 0x43}, {"gfx1151", 0x4A}, {"gfx1152", 0x55},
    {"gfx1153", 0x58}, {"gfx1200", 0x48}, {"gfx1201", 0x4E}, {"gfx1250", 0x49},
};

template <class T>
T load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

// The number in a code object's e_flags that stands for an arch, if this runtime knows it.
std::optional<uint32_t> expected_number(format::Vendor vendor, std::string_view arch) {
  if (vendor == format::Vendor::kHip) {
    for (const AmdMach& known : kAmdMachs) {
      if (known.arch == arch) {
        return known.mach;
      }
    }
    return std::nullopt;
  }
  constexpr std::string_view kPrefix = "sm_";
  if (arch.substr(0, kPrefix.size()) != kPrefix) {
    return std::nullopt;
  }
  const std::string_view digits = arch.substr(kPrefix.size());
  uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return std::nullopt;
  }
  return number;
}

// The same number as a code object has it.
uint32_t number_of(const uint8_t* data, format::Vendor vendor, const std::string& context) {
  const auto flags = load<uint32_t>(data + 48);
  if (vendor == format::Vendor::kHip) {
    return flags & 0xFF;
  }
  switch (data[8]) {
    case kCudaAbi7:
      return flags & 0xFF;
    case kCudaAbi8:
      return (flags >> 8) & 0xFF;
    default:
      throw Error(AOTBUILD_ERROR_PACK_ARCH,
                  context + ": cubin has ELF ABI version " + std::to_string(data[8]) +
                      ", expected 7 or 8; it was made by a CUDA toolkit that this runtime does "
                      "not know: update the runtime");
  }
}

}  // namespace

void check_elf(const uint8_t* data, size_t size, format::Vendor vendor, std::string_view arch,
               const std::string& context) {
  if (size < kHeaderSize) {
    throw Error(AOTBUILD_ERROR_PACK_CORRUPT, context + ": code object has " + std::to_string(size) +
                                                 " bytes, an ELF header takes 64");
  }
  if (std::memcmp(data,
                  "\x7f"
                  "ELF",
                  4) != 0 ||
      data[4] != kClass64 || data[5] != kLittleEndian) {
    throw Error(AOTBUILD_ERROR_PACK_CORRUPT,
                context + ": code object is not a 64-bit little-endian ELF file");
  }
  const bool cuda = vendor == format::Vendor::kCuda;
  const auto machine = load<uint16_t>(data + 18);
  if (machine != (cuda ? kMachineCuda : kMachineAmd)) {
    throw Error(AOTBUILD_ERROR_PACK_ARCH, context + ": code object is for ELF machine " +
                                              std::to_string(machine) + ", expected " +
                                              (cuda ? "190 (CUDA)" : "224 (AMDGPU)"));
  }
  const std::optional<uint32_t> expected = expected_number(vendor, arch);
  if (!expected) {
    throw Error(AOTBUILD_ERROR_PACK_ARCH, context + ": this runtime does not know the arch '" +
                                              std::string(arch) + "' of the pack; update it");
  }
  const uint32_t seen = number_of(data, vendor, context);
  if (seen != *expected) {
    throw Error(AOTBUILD_ERROR_PACK_ARCH,
                context + ": code object is for " + (cuda ? "SM " : "EF_AMDGPU_MACH ") +
                    std::to_string(seen) + ", expected " + std::to_string(*expected) + " (" +
                    std::string(arch) + ")");
  }
}

}  // namespace aotbuild
