#include "launch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime_fixture.h"

namespace aotbuild {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): the words of these tests
using format::SourceKind;
using format::Type;

format::Vendor vendor_of(int32_t device_type) {
  return device_type == kDeviceCuda ? format::Vendor::kCuda : format::Vendor::kHip;
}

// What both drivers must do.
class LaunchTest : public RuntimeTest, public testing::WithParamInterface<int32_t> {
 protected:
  FakeDriver& driver() { return fake(GetParam()); }
  PackBuilder pack() const { return simple_pack(vendor_of(GetParam())); }
  SimpleCall call(int32_t device = 0, int64_t rows = 128) const {
    return SimpleCall(GetParam(), device, rows);
  }
  // Launches `image` as changed by `change`; gives the record.
  template <class Change>
  RecordedLaunch launch_changed(Change change) {
    PackBuilder builder = pack();
    change(builder.images[0]);
    install(builder);
    const auto library = open();
    launch(*library, call().request());
    const auto launches = driver().launches();
    EXPECT_EQ(launches.size(), 1U);
    return launches.empty() ? RecordedLaunch() : launches[0];
  }
  template <class Change>
  void expect_refused(aotbuild_status status, std::initializer_list<std::string> pieces,
                      Change change) {
    PackBuilder builder = pack();
    change(builder.images[0]);
    install(builder);
    const auto library = open();
    expect_error(status, pieces, [&] { launch(*library, call().request()); });
    EXPECT_TRUE(driver().launches().empty());
    EXPECT_EQ(driver().modules(), 0);
  }
};

INSTANTIATE_TEST_SUITE_P(Drivers, LaunchTest, testing::Values(kDeviceCuda, kDeviceRocm),
                         [](const auto& info) {
                           return info.param == kDeviceCuda ? "Cuda" : "Hip";
                         });

TEST_P(LaunchTest, UnknownDeviceIsRefused) {
  install(pack());
  const auto library = open();
  expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, {"device 2"},
               [&] { launch(*library, call(2).request()); });
  expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, {"-1"},
               [&] { launch(*library, call(-1).request()); });
  expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, {"256"},
               [&] { launch(*library, call(256).request()); });
}

TEST_P(LaunchTest, StreamOfAnotherDeviceIsRefused) {
  install(pack());
  const auto library = open();
  void* stream = driver().make_stream(1);
  expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, {"stream", "device 1", "device 0"},
               [&] { launch(*library, call().request(stream)); });
  EXPECT_EQ(driver().modules(), 0);  // refused before anything was loaded
  launch(*library, call().request());
  expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, {"stream", "device 1", "device 0"},
               [&] { launch(*library, call().request(stream)); });
  EXPECT_EQ(driver().launches().size(), 1U);
}

TEST_P(LaunchTest, MoreSharedMemoryThanTheDeviceHasIsRefused) {
  const uint32_t limit = GetParam() == kDeviceCuda ? 227 * 1024 : 64 * 1024;
  expect_refused(AOTBUILD_ERROR_UNSUPPORTED,
                 {std::to_string(limit + 1), std::to_string(limit), "shared"},
                 [&](format::Image& image) { image.shared = limit + 1; });
}

TEST_P(LaunchTest, CooperativeLaunchNeedsADeviceThatCan) {
  driver().device(0).cooperative = false;
  expect_refused(AOTBUILD_ERROR_UNSUPPORTED, {"cooperative"},
                 [](format::Image& image) { image.flags = format::kCooperative; });
}

TEST_P(LaunchTest, MissingWorkspaceIsRefused) {
  expect_refused(AOTBUILD_ERROR_WORKSPACE, {"200 bytes", "aligned to 64", "got 0 bytes"},
                 [](format::Image& image) {
                   image.global_scratch = 100;
                   image.global_scratch_align = 64;
                 });
}

TEST_P(LaunchTest, MissingSymbolIsADriverErrorAndLeavesNothingLoaded) {
  PackBuilder builder = pack();
  builder.images[0].symbol = builder.text("missing_kernel");
  install(builder);
  const auto library = open();
  expect_error(AOTBUILD_ERROR_DRIVER, {"missing_kernel", "500"},
               [&] { launch(*library, call().request()); });
  EXPECT_EQ(driver().modules(), 0);
}

TEST_P(LaunchTest, ArgumentsComeInTheKernelsOrder) {
  install(pack());
  const auto library = open();
  driver().set_parameters(kSimpleParameters);
  launch(*library, call(0, 130).request());
  ASSERT_EQ(driver().launches().size(), 1U);
  const RecordedLaunch record = driver().launches()[0];
  EXPECT_EQ(record.symbol, "kernel");
  EXPECT_EQ(record.grid, (std::vector<unsigned>{3, 1, 1}));
  EXPECT_EQ(record.block, (std::vector<unsigned>{128, 1, 1}));
  EXPECT_EQ(record.shared, 0U);
  EXPECT_TRUE(record.cluster.empty());
  EXPECT_FALSE(record.cooperative || record.programmatic || record.spread);
  ASSERT_EQ(record.arguments.size(), 7U);
  EXPECT_EQ(read<uint64_t>(record.arguments[0]), 0x10000U);
  EXPECT_EQ(read<uint64_t>(record.arguments[1]), 0x20000U);
  EXPECT_EQ(read<int64_t>(record.arguments[2]), 130);
  EXPECT_EQ(read<int32_t>(record.arguments[3]), 32);
  EXPECT_EQ(read<float>(record.arguments[4]), 0.5F);
  EXPECT_EQ(read<uint64_t>(record.arguments[5]), 0U);
  EXPECT_EQ(read<uint64_t>(record.arguments[6]), 0U);
}

TEST_P(LaunchTest, EmptyGridTouchesNothing) {
  install(pack());
  const auto library = open();
  launch(*library, call(0, 0).request(driver().make_stream(1)));
  EXPECT_TRUE(driver().launches().empty());
  EXPECT_EQ(driver().modules(), 0);
}

TEST_P(LaunchTest, EachDeviceLoadsOnce) {
  install(pack());
  const auto library = open();
  void* stream = driver().make_stream(1);
  for (int i = 0; i < 3; ++i) {
    launch(*library, call(0).request());
    launch(*library, call(1).request(stream));
  }
  EXPECT_EQ(driver().modules(), 2);
  const auto launches = driver().launches();
  ASSERT_EQ(launches.size(), 6U);
  for (size_t i = 0; i < launches.size(); ++i) {
    EXPECT_EQ(launches[i].device, static_cast<int>(i % 2));
    EXPECT_EQ(launches[i].stream, i % 2 == 0 ? nullptr : stream);
  }
}

TEST_P(LaunchTest, ClosingUnloads) {
  install(pack());
  auto library = open();
  launch(*library, call(0).request());
  launch(*library, call(1).request());
  EXPECT_EQ(driver().modules(), 2);
  library.reset();
  EXPECT_EQ(driver().modules(), 0);
}

TEST_P(LaunchTest, SpecialStreamsRunOnTheTensorsDevice) {
  install(pack());
  const auto library = open();
  for (uintptr_t stream : {0, 1, 2}) {
    launch(*library, call(1).request(reinterpret_cast<void*>(stream)));
    EXPECT_EQ(driver().launches().back().device, 1);
    EXPECT_EQ(driver().launches().back().stream, reinterpret_cast<void*>(stream));
  }
}

TEST_P(LaunchTest, LoadingIsAllowedDuringAStreamCapture) {
  install(pack());
  const auto library = open();
  driver().set_capturing(true);
  launch(*library, call().request());
  EXPECT_EQ(driver().launches().size(), 1U);
}

TEST_P(LaunchTest, FlagsAndClustersReachTheDriver) {
  const RecordedLaunch record = launch_changed([](format::Image& image) {
    image.num_ctas = 2;
    image.cluster[0] = 2;
    image.flags = format::kCooperative;
    image.shared = 40000;
  });
  EXPECT_EQ(record.grid, (std::vector<unsigned>{4, 1, 1}));
  EXPECT_EQ(record.cluster, (std::vector<unsigned>{2, 1, 1}));
  EXPECT_TRUE(record.cooperative);
  EXPECT_EQ(record.shared, 40000U);
  EXPECT_EQ(record.spread, GetParam() == kDeviceCuda);
}

TEST_P(LaunchTest, CooperativeWithoutCluster) {
  const RecordedLaunch record =
      launch_changed([](format::Image& image) { image.flags = format::kCooperative; });
  EXPECT_TRUE(record.cooperative);
  EXPECT_TRUE(record.cluster.empty());
}

TEST_P(LaunchTest, ProgrammaticLaunchIsAPermission) {
  const RecordedLaunch record =
      launch_changed([](format::Image& image) { image.flags = format::kProgrammatic; });
  EXPECT_EQ(record.programmatic, GetParam() == kDeviceCuda);
}

TEST_P(LaunchTest, ScratchIsLaidOutInTheWorkspace) {
  PackBuilder builder = pack();
  format::Image& image = builder.images[0];
  image.num_ctas = 2;
  image.cluster[0] = 2;
  image.global_scratch = 100;
  image.global_scratch_align = 64;
  image.profile_scratch = 8;
  image.profile_scratch_align = 128;
  install(builder);
  const auto library = open();
  SimpleCall simple = call();
  LaunchRequest request = simple.request();
  aotbuild_launch_info info = AOTBUILD_INIT(aotbuild_launch_info);
  query(*library, request, &info);
  // Two programs; CUDA counts the blocks of their clusters, HIP does not.
  const uint64_t parts = GetParam() == kDeviceCuda ? 4 : 2;
  const uint64_t offset = (parts * 100 + 127) / 128 * 128;
  EXPECT_EQ(info.workspace_size, offset + parts * 8);
  EXPECT_EQ(info.workspace_align, 128U);
  EXPECT_EQ(info.grid[0], 4U);

  request.workspace = reinterpret_cast<void*>(uintptr_t{0x40000});
  request.workspace_size = info.workspace_size - 1;
  expect_error(AOTBUILD_ERROR_WORKSPACE, {std::to_string(info.workspace_size)},
               [&] { launch(*library, request); });
  request.workspace_size = info.workspace_size;
  request.workspace = reinterpret_cast<void*>(uintptr_t{0x40040});
  expect_error(AOTBUILD_ERROR_WORKSPACE, {"aligned to 128"}, [&] { launch(*library, request); });
  request.workspace = reinterpret_cast<void*>(uintptr_t{0x40000});
  driver().set_parameters(kSimpleParameters);
  launch(*library, request);
  const RecordedLaunch record = driver().launches().at(0);
  EXPECT_EQ(read<uint64_t>(record.arguments[5]), 0x40000U);
  EXPECT_EQ(read<uint64_t>(record.arguments[6]), 0x40000U + offset);
}

TEST_P(LaunchTest, AWorkspaceBeyondAddressingIsRefused) {
  expect_refused(AOTBUILD_ERROR_UNSUPPORTED, {"workspace"}, [](format::Image& image) {
    image.global_scratch = std::numeric_limits<uint64_t>::max();
  });
}

TEST_P(LaunchTest, QueryLoadsNothing) {
  install(pack());
  const auto library = open();
  aotbuild_launch_info info = AOTBUILD_INIT(aotbuild_launch_info);
  SimpleCall simple = call();
  query(*library, simple.request(), &info);
  EXPECT_STREQ(info.image, "image");
  EXPECT_EQ(info.pack, directory.path() / "packs" / pack().arch / "test.aotpack");
  EXPECT_EQ(info.grid[0], 2U);
  EXPECT_EQ(info.threads, 128U);
  EXPECT_EQ(info.workspace_size, 0U);
  EXPECT_EQ(driver().modules(), 0);
}

TEST_P(LaunchTest, AnImageThatAsksForMoreThanTheCallHasIsAContractError) {
  PackBuilder builder = pack();
  builder.add_argument("extra", Type::kI32, SourceKind::kValue, "colour");
  builder.add_argument("more", Type::kI32, SourceKind::kValue, "shade");
  install(builder);
  const auto library = open();
  expect_error(AOTBUILD_ERROR_CONTRACT, {"'colour', 'shade'", "'scale'", "test.aotpack"},
               [&] { launch(*library, call().request()); });
  EXPECT_EQ(driver().modules(), 0);
}

TEST_P(LaunchTest, ContractVersionsMustAgree) {
  install(pack());
  const auto library = open();
  SimpleCall simple = call();
  LaunchRequest request = simple.request();
  request.contract = 2;
  expect_error(AOTBUILD_ERROR_CONTRACT, {"contract 1", "contract 2", "test.scale"},
               [&] { launch(*library, request); });
  request.contract = 1;
  launch(*library, request);
}

// Every function of the driver may fail; each time it is named, and nothing is launched.
struct Step {
  int32_t device_type;
  const char* function;
};

class DriverFailure : public RuntimeTest, public testing::WithParamInterface<Step> {};

TEST_P(DriverFailure, IsReported) {
  const Step step = GetParam();
  FakeDriver& driver = fake(step.device_type);
  PackBuilder builder = simple_pack(vendor_of(step.device_type));
  if (step.device_type == kDeviceCuda) builder.images[0].shared = 60000;
  install(builder);
  {
    const SimpleCall warm_up(step.device_type, 0);  // opens the driver and the device's context
    launch(*open(), warm_up.request());
  }
  driver.reset();
  const auto library = open();
  const SimpleCall simple(step.device_type, 1);
  void* stream = driver.make_stream(1);
  driver.fail(step.function, 700);
  const char* code = step.device_type == kDeviceCuda ? "CUDA_ERROR_ILLEGAL_ADDRESS (700)"
                                                     : "hipErrorIllegalAddress (700)";
  expect_error(AOTBUILD_ERROR_DRIVER, {step.function, code},
               [&] { launch(*library, simple.request(stream)); });
  EXPECT_TRUE(driver.launches().empty());
  EXPECT_EQ(driver.current(), 0U);
  EXPECT_EQ(driver.last_error(), 0);
  // The error is not remembered.
  launch(*library, simple.request(stream));
  EXPECT_EQ(driver.launches().size(), 1U);
  EXPECT_EQ(driver.modules(), 1);
}

INSTANTIATE_TEST_SUITE_P(
    Functions, DriverFailure,
    testing::Values(
        Step{kDeviceCuda, "cuDeviceGetAttribute"}, Step{kDeviceCuda, "cuCtxGetCurrent"},
        Step{kDeviceCuda, "cuCtxGetDevice"}, Step{kDeviceCuda, "cuStreamGetCtx"},
        Step{kDeviceCuda, "cuCtxPushCurrent"},
        Step{kDeviceCuda, "cuThreadExchangeStreamCaptureMode"},
        Step{kDeviceCuda, "cuLibraryLoadData"}, Step{kDeviceCuda, "cuLibraryGetKernel"},
        Step{kDeviceCuda, "cuKernelSetAttribute"}, Step{kDeviceCuda, "cuKernelGetFunction"},
        Step{kDeviceCuda, "cuLaunchKernelEx"}, Step{kDeviceRocm, "hipGetDevicePropertiesR0600"},
        Step{kDeviceRocm, "hipDeviceGetAttribute"}, Step{kDeviceRocm, "hipStreamGetDevice"},
        Step{kDeviceRocm, "hipGetDevice"}, Step{kDeviceRocm, "hipSetDevice"},
        Step{kDeviceRocm, "hipThreadExchangeStreamCaptureMode"},
        Step{kDeviceRocm, "hipModuleLoadData"}, Step{kDeviceRocm, "hipModuleGetFunction"},
        Step{kDeviceRocm, "hipModuleLaunchKernel"}),
    [](const auto& info) { return std::string(info.param.function); });

}  // namespace
}  // namespace aotbuild
