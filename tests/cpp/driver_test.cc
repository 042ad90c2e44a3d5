// The drivers by themselves: what only one of them does.
#include "driver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "cuda_abi.h"
#include "runtime_fixture.h"
#include "tdm.h"

namespace aotbuild {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): the words of these tests

// Runs `body` in a process of its own, in which no driver has been opened yet.
#define IN_FRESH_PROCESS(body)                            \
  do {                                                    \
    testing::FLAGS_gtest_death_test_style = "threadsafe"; \
    EXPECT_EXIT(                                          \
        {                                                 \
          body();                                         \
          std::exit(testing::Test::HasFailure() ? 1 : 0); \
        },                                                \
        testing::ExitedWithCode(0), "");                  \
  } while (false)

TEST(DriverOf, OtherDeviceTypesAreRefused) {
  expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, {"device type 1", "2 (CUDA)", "10 (ROCm)"},
               [] { Driver::of(1); });
}

void expect_no_cuda() {
  for (int i = 0; i < 2; ++i) {  // reported every time
    expect_error(AOTBUILD_ERROR_NO_DRIVER, {"libcuda.so.1", "No such file", "Install"},
                 [] { Driver::of(kDeviceCuda); });
  }
  load_fake(AOTBUILD_FAKE_CUDA);
  EXPECT_EQ(Driver::of(kDeviceCuda).device(0).arch, "sm_90");  // and not for ever
}

TEST(NoDriverDeathTest, Cuda) {
  if (void* real = dlopen("libcuda.so.1", RTLD_LAZY)) {
    dlclose(real);
    GTEST_SKIP() << "this machine has a libcuda.so.1, so its absence cannot be tested";
  }
  IN_FRESH_PROCESS(expect_no_cuda);
}

void expect_no_hip() {
  expect_error(AOTBUILD_ERROR_NO_DRIVER,
               {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "Install"},
               [] { Driver::of(kDeviceRocm); });
}

TEST(NoDriverDeathTest, Hip) {
  for (const char* name : {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"}) {
    if (void* real = dlopen(name, RTLD_LAZY)) {
      dlclose(real);
      GTEST_SKIP() << "this machine has a " << name << ", so its absence cannot be tested";
    }
  }
  IN_FRESH_PROCESS(expect_no_hip);
}

void expect_old_cuda() {
  setenv("FAKE_CUDA_VERSION", "11080", 1);
  load_fake(AOTBUILD_FAKE_CUDA);
  expect_error(AOTBUILD_ERROR_NO_DRIVER, {"11.8", "12.0", "Update"},
               [] { Driver::of(kDeviceCuda); });
}

TEST(OldDriverDeathTest, Cuda) { IN_FRESH_PROCESS(expect_old_cuda); }

void expect_failing_start() {
  FakeDriver& fake = load_fake(AOTBUILD_FAKE_CUDA);
  for (const char* function : {"cuInit", "cuDeviceGetCount", "cuDeviceGet"}) {
    fake.fail(function, 100);
    expect_error(AOTBUILD_ERROR_DRIVER, {function, "100"}, [] { Driver::of(kDeviceCuda); });
  }
  const std::vector<uint8_t> code = fake_code(format::Vendor::kCuda, 90, "code");
  Driver& driver = Driver::of(kDeviceCuda);
  fake.fail("cuDevicePrimaryCtxRetain", 2);
  expect_error(AOTBUILD_ERROR_DRIVER, {"cuDevicePrimaryCtxRetain", "(2)", "device 1"},
               [&] { driver.load(1, code.data(), code.size(), "kernel", 0); });
  driver.unload(1, driver.load(1, code.data(), code.size(), "kernel", 0));
}

TEST(FailingStartDeathTest, Cuda) { IN_FRESH_PROCESS(expect_failing_start); }

void expect_failing_hip_start() {
  FakeDriver& fake = load_fake(AOTBUILD_FAKE_HIP);
  fake.fail("hipGetDeviceCount", 100);
  expect_error(AOTBUILD_ERROR_DRIVER, {"hipGetDeviceCount", "(100)"},
               [] { Driver::of(kDeviceRocm); });
  EXPECT_EQ(Driver::of(kDeviceRocm).device(1).arch, "gfx942");
}

TEST(FailingStartDeathTest, Hip) { IN_FRESH_PROCESS(expect_failing_hip_start); }

// ROCm 5.2: properties laid out otherwise, no cooperative or cluster launch, streams that do not
// tell their device.
void expect_hip_5() {
  FakeDriver& fake = load_fake(AOTBUILD_FAKE_HIP_5);
  fake.device(1).arch = "gfx90a:sramecc+:xnack-";
  Driver& driver = Driver::of(kDeviceRocm);
  EXPECT_EQ(driver.device(1).arch, "gfx90a");
  const std::vector<uint8_t> code = fake_code(format::Vendor::kHip, 0x53F, "code");
  const Kernel kernel = driver.load(1, code.data(), code.size(), "kernel", 0);
  LaunchConfig config = {{1, 1, 1}, 64, 0, {1, 1, 1}, false, false};
  driver.launch(1, fake.make_stream(1), kernel, config, nullptr);
  EXPECT_EQ(fake.launches().size(), 1U);
  config.cooperative = true;
  expect_error(AOTBUILD_ERROR_UNSUPPORTED, {"hipModuleLaunchCooperativeKernel"},
               [&] { driver.launch(1, nullptr, kernel, config, nullptr); });
  config.cluster[0] = 2;
  expect_error(AOTBUILD_ERROR_UNSUPPORTED, {"hipDrvLaunchKernelEx"},
               [&] { driver.launch(1, nullptr, kernel, config, nullptr); });
  EXPECT_EQ(fake.launches().size(), 1U);
  driver.unload(1, kernel);
  EXPECT_EQ(fake.modules(), 0);
}

TEST(OldDriverDeathTest, Hip) { IN_FRESH_PROCESS(expect_hip_5); }

class DriverTest : public RuntimeTest {
 protected:
  Kernel load(int32_t type, int32_t device, uint32_t shared = 0) {
    const auto vendor = type == kDeviceCuda ? format::Vendor::kCuda : format::Vendor::kHip;
    const std::vector<uint8_t> code = fake_code(vendor, 90, "code");
    return Driver::of(type).load(device, code.data(), code.size(), "kernel", shared);
  }
  const LaunchConfig config = {{1, 1, 1}, 64, 0, {1, 1, 1}, false, false};
};

TEST_F(DriverTest, DevicesAreDescribed) {
  cuda.device(1).capability = 120;
  cuda.device(1).multiprocessors = 170;
  cuda.device(1).cooperative = false;
  const DeviceInfo info = Driver::of(kDeviceCuda).device(1);
  EXPECT_EQ(info.arch, "sm_120");
  EXPECT_EQ(info.multiprocessors, 170U);
  EXPECT_EQ(info.max_shared, 227U * 1024);
  EXPECT_FALSE(info.cooperative);
  const DeviceInfo amd = Driver::of(kDeviceRocm).device(0);
  EXPECT_EQ(amd.arch, "gfx942");
  EXPECT_EQ(amd.multiprocessors, 304U);
  EXPECT_EQ(amd.max_shared, 64U * 1024);
  EXPECT_TRUE(amd.cooperative);
}

TEST_F(DriverTest, CudaWorksInTheStreamsContextAndLeavesTheThreadAsItWas) {
  Driver& driver = Driver::of(kDeviceCuda);
  const Kernel kernel = load(kDeviceCuda, 1);
  const auto own = reinterpret_cast<uintptr_t>(cuda.make_context(1));
  const auto other = reinterpret_cast<uintptr_t>(cuda.make_context(0));
  void* stream = cuda.make_stream(1);
  for (const uintptr_t before : {uintptr_t{0}, own, other}) {
    cuda.set_current(before);
    driver.launch(1, stream, kernel, config, nullptr);
    EXPECT_NE(reinterpret_cast<uintptr_t>(cuda.launches().back().context), before);
    EXPECT_EQ(cuda.current(), before);
    driver.launch(1, nullptr, kernel, config, nullptr);
    EXPECT_EQ(cuda.launches().back().device, 1);
    EXPECT_EQ(cuda.current(), before);
  }
  // With no stream of one's own, a current context of the right device is the one.
  cuda.set_current(own);
  driver.launch(1, nullptr, kernel, config, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(cuda.launches().back().context), own);
  driver.unload(1, kernel);
}

TEST_F(DriverTest, CudaAsksForNothingWhenTheContextIsRight) {
  Driver& driver = Driver::of(kDeviceCuda);
  const Kernel kernel = load(kDeviceCuda, 0);
  cuda.set_current(reinterpret_cast<uintptr_t>(cuda.make_context(0)));
  driver.launch(0, nullptr, kernel, config, nullptr);
  EXPECT_EQ(cuda.calls("cuCtxPushCurrent"), cuda.calls("cuCtxPopCurrent"));
  EXPECT_EQ(cuda.calls("cuCtxPushCurrent"), 1);  // that of load()
  driver.unload(0, kernel);
}

TEST_F(DriverTest, CudaAllowsSharedMemoryOnlyAbove48KiB) {
  Driver& driver = Driver::of(kDeviceCuda);
  driver.unload(0, load(kDeviceCuda, 0, 48 * 1024));
  EXPECT_EQ(cuda.calls("cuKernelSetAttribute"), 0);
  const Kernel kernel = load(kDeviceCuda, 0, 48 * 1024 + 1);
  EXPECT_EQ(cuda.calls("cuKernelSetAttribute"), 1);
  LaunchConfig large = config;
  large.shared = 48 * 1024 + 1;
  driver.launch(0, nullptr, kernel, large, nullptr);
  EXPECT_EQ(cuda.launches().back().shared, 48U * 1024 + 1);
  driver.unload(0, kernel);
}

TEST_F(DriverTest, CudaAllowsClustersOfMoreThanEight) {
  Driver& driver = Driver::of(kDeviceCuda);
  const Kernel kernel = load(kDeviceCuda, 0);
  const LaunchConfig wide = {{32, 1, 1}, 64, 0, {16, 1, 1}, false, false};
  driver.launch(0, nullptr, kernel, wide, nullptr);
  EXPECT_EQ(cuda.launches().back().cluster, (std::vector<unsigned>{16, 1, 1}));
  driver.unload(0, kernel);
}

TEST_F(DriverTest, HipLeavesTheThreadsDeviceAsItWas) {
  Driver& driver = Driver::of(kDeviceRocm);
  const Kernel kernel = load(kDeviceRocm, 1);
  EXPECT_EQ(hip.current(), 0U);
  driver.launch(1, hip.make_stream(1), kernel, config, nullptr);
  EXPECT_EQ(hip.current(), 0U);
  EXPECT_EQ(hip.calls("hipSetDevice"), 4);  // there and back, twice
  hip.set_current(1);
  driver.launch(1, nullptr, kernel, config, nullptr);
  EXPECT_EQ(hip.current(), 1U);
  EXPECT_EQ(hip.calls("hipSetDevice"), 4);
  driver.unload(1, kernel);
}

TEST_F(DriverTest, HipRefusesGridsBeyond32Bits) {
  Driver& driver = Driver::of(kDeviceRocm);
  const Kernel kernel = load(kDeviceRocm, 0);
  LaunchConfig large = config;
  large.grid[0] = 1U << 26;  // times 64 threads is 2^32
  expect_error(AOTBUILD_ERROR_UNSUPPORTED, {"67108864", "64", "2^32"},
               [&] { driver.launch(0, nullptr, kernel, large, nullptr); });
  --large.grid[0];
  driver.launch(0, nullptr, kernel, large, nullptr);
  driver.unload(0, kernel);
}

format::Descriptor map_descriptor() {
  format::Descriptor descriptor = {};
  descriptor.form = format::DescriptorForm::kTensorMap;
  descriptor.rank = 3;
  descriptor.element_type = 10;
  descriptor.element_bits = 16;
  descriptor.swizzle = 3;
  descriptor.box[0] = 1;
  descriptor.box[1] = 128;
  descriptor.box[2] = 64;
  return descriptor;
}

cuda::TensorMap encode_map(const format::Descriptor& descriptor, const aotbuild_tensor& tensor) {
  cuda::TensorMap map;
  EXPECT_EQ(Driver::of(kDeviceCuda).encode(descriptor, tensor, &map), 128U);
  return map;
}

TEST_F(DriverTest, TensorMapsAreReversed) {
  FakeTensor tensor({2, 300, 96}, 4 | 16 << 8, 0x7000);
  tensor->byte_offset = 0x100;
  tensor.set_strides({100000, 104, 1});
  const cuda::TensorMap map = encode_map(map_descriptor(), *tensor);
  EXPECT_EQ(map.opaque[0], 0x7100U);
  EXPECT_EQ(map.opaque[1], uint64_t{1} << 21 | uint64_t{9} << 32 | 3);  // bf16; a wide span
  EXPECT_EQ(map.opaque[2], 96U | uint64_t{64} << 40);
  EXPECT_EQ(map.opaque[3], 300U | uint64_t{128} << 40);
  EXPECT_EQ(map.opaque[4], 2U | uint64_t{1} << 40);
  EXPECT_EQ(map.opaque[7], 208U);
  EXPECT_EQ(map.opaque[8], 200000U);
  EXPECT_EQ(map.opaque[12], 0U | 3U << 8 | 2U << 16 | 0U << 24);
}

TEST_F(DriverTest, TensorMapTypes) {
  FakeTensor tensor({2, 300, 96}, kFloat16, 0x7000);
  format::Descriptor descriptor = map_descriptor();
  const std::pair<int, int> types[] = {{0, 0}, {6, 6}, {7, 7}, {8, 10}, {9, 8}, {10, 9}, {11, 11}};
  for (const auto& [triton, driver] : types) {
    descriptor.element_type = static_cast<uint8_t>(triton);
    EXPECT_EQ(encode_map(descriptor, *tensor).opaque[1] >> 32, static_cast<unsigned>(driver));
  }
  descriptor.flags = format::kRoundToTf32 | format::kNanFill;
  const cuda::TensorMap map = encode_map(descriptor, *tensor);
  EXPECT_EQ(map.opaque[1] >> 32, 11U);
  EXPECT_EQ(map.opaque[12] >> 24, 1U);
}

TEST_F(DriverTest, OldDriversNeedABitClearedInSmallTensorMaps) {
  format::Descriptor descriptor = map_descriptor();
  descriptor.rank = 2;
  descriptor.box[0] = descriptor.box[1] = 64;
  // The last element begins at 131070 bytes, and 131072.
  FakeTensor small({1024, 64}, kFloat16, 0x7000);
  FakeTensor large({1025, 64}, kFloat16, 0x7000);
  EXPECT_EQ(encode_map(descriptor, *small).opaque[1] >> 21 & 1, 0U);
  EXPECT_EQ(encode_map(descriptor, *large).opaque[1] >> 21 & 1, 1U);
}

TEST_F(DriverTest, FourBitTensorMapsCountNumbers) {
  FakeTensor tensor({300, 96}, 1 | 8 << 8, 0x7000);
  format::Descriptor descriptor = map_descriptor();
  descriptor.rank = 2;
  descriptor.element_bits = 8;
  descriptor.element_type = 0;
  descriptor.flags = format::kFp4Padded;
  descriptor.box[0] = descriptor.box[1] = 128;
  const cuda::TensorMap map = encode_map(descriptor, *tensor);
  EXPECT_EQ(map.opaque[2] & 0xFFFF, 192U);
  EXPECT_EQ(map.opaque[7], 96U);
}

std::vector<uint32_t> encode_words(const format::Descriptor& descriptor,
                                   const aotbuild_tensor& tensor) {
  uint32_t words[20] = {};
  const size_t size = encode_tdm(descriptor, tensor, words);
  return {words, words + size / 4};
}

// Expected words of the two tests below were computed by hand from the field positions of
// Triton 3.9's AMD back end.
TEST(Tdm, Rank2WithPadding) {
  FakeTensor tensor({0x12345, 0x6789A}, kFloat16, 0x123456789000);
  tensor.set_strides({0x123456789A, 1});
  format::Descriptor descriptor = {};
  descriptor.form = format::DescriptorForm::kTdm;
  descriptor.rank = 2;
  descriptor.element_bits = 16;
  descriptor.warps = 8;
  descriptor.box[0] = 4;
  descriptor.box[1] = 64;
  descriptor.pad_interval = 64;
  descriptor.pad_amount = 8;
  // Warps: 4 to the first dimension, 2 to the second; a warp's box is 1 x 32.
  EXPECT_EQ(
      encode_words(descriptor, *tensor),
      (std::vector<uint32_t>{1, 0, 0x56789000, 0x80001234,
                             1U << 16 | 1U << 20 | 4U << 22 | 3U << 25, 0x789AU << 16,
                             0x0006 | 0x2345U << 16, 0x0001 | 32U << 16, 1, 0x3456789A, 0x12, 0}));
}

TEST(Tdm, Rank5) {
  FakeTensor tensor({2, 3, 5, 7, 11}, kFloat32, 0x1000);
  tensor.set_strides({0x5000000000, 0x400000000, 0x300000, 0x2000, 1});
  format::Descriptor descriptor = {};
  descriptor.form = format::DescriptorForm::kTdm;
  descriptor.rank = 5;
  descriptor.element_bits = 32;
  descriptor.warps = 4;
  for (int i = 0; i < 5; ++i) descriptor.box[i] = i == 0 ? 2 : 8;
  // Warps: 2 and 2; a warp's box is 1 x 4 x 8 x 8 x 8.
  EXPECT_EQ(encode_words(descriptor, *tensor), (std::vector<uint32_t>{1,
                                                                      0,
                                                                      0x1000,
                                                                      0x80000000,
                                                                      2U << 16,
                                                                      11U << 16,
                                                                      7U << 16,
                                                                      8U << 16,
                                                                      8 | 8U << 16,
                                                                      0x2000,
                                                                      0,
                                                                      0x30,
                                                                      5,
                                                                      3,
                                                                      0,
                                                                      4U | 4U << 16,
                                                                      0,
                                                                      0x50 | 2U << 16,
                                                                      1U << 16,
                                                                      0}));
}

TEST(Tdm, OneDimensionIsSharedByAllWarps) {
  FakeTensor tensor({100}, kFloat16, 0x1000);
  format::Descriptor descriptor = {};
  descriptor.rank = 1;
  descriptor.element_bits = 16;
  descriptor.warps = 4;
  descriptor.box[0] = 66;
  const std::vector<uint32_t> words = encode_words(descriptor, *tensor);
  ASSERT_EQ(words.size(), 12U);
  EXPECT_EQ(words[7] >> 16, 17U);
  EXPECT_EQ(words[8], 0U);
}

TEST(Tdm, WhatDoesNotFitIsRefused) {
  format::Descriptor descriptor = {};
  descriptor.rank = 2;
  descriptor.element_bits = 16;
  descriptor.warps = 1;
  FakeTensor long_stride({4, 4}, kFloat16);
  long_stride.set_strides({int64_t{1} << 48, 1});
  expect_error(AOTBUILD_ERROR_UNSUPPORTED, {"stride", "281474976710656", "48 bits"},
               [&] { encode_words(descriptor, *long_stride); });
  FakeTensor large({int64_t{1} << 32, 4}, kFloat16);
  expect_error(AOTBUILD_ERROR_UNSUPPORTED, {"4294967296", "32 bits"},
               [&] { encode_words(descriptor, *large); });
}

}  // namespace
}  // namespace aotbuild
