#include "elf.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "expect_error.h"
#include "pack_builder.h"

namespace aotbuild {
namespace {

using format::Vendor;
using test::expect_error;
using test::fake_code;

void check(const std::vector<uint8_t>& code, Vendor vendor, const char* arch) {
  check_elf(code.data(), code.size(), vendor, arch, "a.aotpack: image 'i'");
}

// The header fields of a cubin or hsaco; flags as real compilers write them.
std::vector<uint8_t> code_with(Vendor vendor, uint8_t abi_version, uint32_t flags) {
  std::vector<uint8_t> code = fake_code(vendor, 0, "");
  code[8] = abi_version;
  std::memcpy(code.data() + 48, &flags, sizeof(flags));
  return code;
}

TEST(Elf, RefusesWhatIsNoElf) {
  const std::vector<uint8_t> good = fake_code(Vendor::kCuda, 90, "");
  expect_error(AOTBUILD_ERROR_PACK_CORRUPT, {"image 'i'", "63 bytes", "64"},
               [&] { check({good.begin(), good.end() - 1}, Vendor::kCuda, "sm_90"); });
  for (const size_t at : {0, 3, 4, 5}) {  // magic, class, byte order
    std::vector<uint8_t> bad = good;
    bad[at] ^= 3;
    expect_error(AOTBUILD_ERROR_PACK_CORRUPT, {"not a 64-bit little-endian ELF"},
                 [&] { check(bad, Vendor::kCuda, "sm_90"); });
  }
}

TEST(Elf, RefusesTheOtherVendor) {
  expect_error(AOTBUILD_ERROR_PACK_ARCH, {"machine 190", "224 (AMDGPU)"},
               [] { check(fake_code(Vendor::kCuda, 90, ""), Vendor::kHip, "gfx942"); });
  expect_error(AOTBUILD_ERROR_PACK_ARCH, {"machine 224", "190 (CUDA)"},
               [] { check(fake_code(Vendor::kHip, 0x4C, ""), Vendor::kCuda, "sm_90"); });
}

TEST(Elf, RefusesAnotherArch) {
  expect_error(AOTBUILD_ERROR_PACK_ARCH, {"SM 90", "100 (sm_100)"},
               [] { check(fake_code(Vendor::kCuda, 90, ""), Vendor::kCuda, "sm_100"); });
  expect_error(AOTBUILD_ERROR_PACK_ARCH, {"EF_AMDGPU_MACH 76", "79 (gfx950)"},
               [] { check(fake_code(Vendor::kHip, 0x4C, ""), Vendor::kHip, "gfx950"); });
}

TEST(Elf, RefusesArchesItDoesNotKnow) {
  for (const char* arch : {"sm_", "sm_9x", "sm_90a", "90", "", "gfx942"}) {
    expect_error(AOTBUILD_ERROR_PACK_ARCH, {"does not know the arch '" + std::string(arch) + "'"},
                 [&] { check(fake_code(Vendor::kCuda, 90, ""), Vendor::kCuda, arch); });
  }
  for (const char* arch : {"gfx94", "gfx9420", "gfx942:xnack-", "sm_90"}) {
    expect_error(AOTBUILD_ERROR_PACK_ARCH, {"does not know the arch"},
                 [&] { check(fake_code(Vendor::kHip, 0x4C, ""), Vendor::kHip, arch); });
  }
}

TEST(Elf, RefusesCubinsOfAnotherAbi) {
  for (const uint8_t abi_version : {6, 9}) {
    expect_error(AOTBUILD_ERROR_PACK_ARCH, {"ABI version " + std::to_string(abi_version)}, [&] {
      check(code_with(Vendor::kCuda, abi_version, 0x9005a04), Vendor::kCuda, "sm_90");
    });
  }
}

// e_flags of kernels that Triton 3.9 compiled for each arch.
TEST(Elf, AcceptsRealHeaders) {
  struct {
    Vendor vendor;
    const char* arch;
    uint8_t abi_version;
    uint32_t flags;
  } const real[] = {
      {Vendor::kCuda, "sm_80", 7, 0x500550},   {Vendor::kCuda, "sm_86", 7, 0x560556},
      {Vendor::kCuda, "sm_89", 7, 0x590559},   {Vendor::kCuda, "sm_90", 8, 0x9005a04},
      {Vendor::kCuda, "sm_100", 8, 0x9006402}, {Vendor::kCuda, "sm_103", 8, 0x9006702},
      {Vendor::kCuda, "sm_120", 8, 0x9007802}, {Vendor::kHip, "gfx90a", 3, 0x53f},
      {Vendor::kHip, "gfx942", 3, 0x54c},      {Vendor::kHip, "gfx950", 3, 0x54f},
      {Vendor::kHip, "gfx1100", 3, 0x41},      {Vendor::kHip, "gfx1151", 3, 0x4a},
      {Vendor::kHip, "gfx1200", 3, 0x48},      {Vendor::kHip, "gfx1201", 3, 0x4e},
      {Vendor::kHip, "gfx1250", 3, 0x449},
  };
  for (const auto& it : real) {
    EXPECT_NO_THROW(check(code_with(it.vendor, it.abi_version, it.flags), it.vendor, it.arch))
        << it.arch;
  }
}

}  // namespace
}  // namespace aotbuild
