// The C ABI and its C++ face. What the calls do is tested beside the sources that do it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

#include "aotbuild/aotbuild.hpp"
#include "fake_driver.h"
#include "pack_builder.h"
#include "temporary_directory.h"

namespace {

using aotbuild::test::FakeDriver;
using aotbuild::test::FakeTensor;
using aotbuild::test::kFloat16;
using aotbuild::test::sample_pack;
using aotbuild::test::TemporaryDirectory;

// Expects a status, and pieces of the message.
void expect(aotbuild_status seen, aotbuild_status expected,
            std::initializer_list<std::string> pieces = {}) {
  EXPECT_EQ(seen, expected) << aotbuild_last_error();
  for (const std::string& piece : pieces) {
    EXPECT_NE(std::string(aotbuild_last_error()).find(piece), std::string::npos)
        << "no \"" << piece << "\" in: " << aotbuild_last_error();
  }
}

class Api : public testing::Test {
 protected:
  void SetUp() override {
    cuda.reset();
    directory.write("sm_90/test.aotpack", sample_pack().build());
    const std::string path = directory.path().string();
    library = aotbuild::Library({path}, true);
    args.family = "test";
    args.op = "forward";
    args.args = list;
    args.arg_count = 5;
  }
  void TearDown() override { EXPECT_EQ(cuda.complaints(), std::vector<std::string>()); }

  TemporaryDirectory directory;
  FakeDriver& cuda = aotbuild::test::load_fake(AOTBUILD_FAKE_CUDA);
  aotbuild::Library library{{}, true};
  FakeTensor x{{64, 32}, kFloat16, 0x10000};
  FakeTensor out{{64, 32}, kFloat16, 0x20000};
  aotbuild_arg list[5] = {{"x", AOTBUILD_ARG_TENSOR, 0, {x.get()}},
                          {"out", AOTBUILD_ARG_TENSOR, 0, {out.get()}},
                          {"mask", AOTBUILD_ARG_TENSOR, 0, {nullptr}},
                          {"fast", AOTBUILD_ARG_INTEGER, 0, {nullptr}},
                          {"scale", AOTBUILD_ARG_REAL, 0, {nullptr}}};
  aotbuild_launch_args args = AOTBUILD_INIT(aotbuild_launch_args);
  aotbuild_launch_info info = AOTBUILD_INIT(aotbuild_launch_info);
};

TEST_F(Api, NullPointersAreRefused) {
  constexpr aotbuild_status kInvalid = AOTBUILD_ERROR_INVALID_ARGUMENT;
  aotbuild_library* handle = library.get();
  size_t needed = 0;
  expect(aotbuild_open(nullptr, nullptr), kInvalid, {"library is null"});
  expect(aotbuild_launch(nullptr, &args), kInvalid, {"library is null"});
  expect(aotbuild_launch(handle, nullptr), kInvalid, {"args is null"});
  expect(aotbuild_query(handle, &args, nullptr), kInvalid, {"info is null"});
  expect(aotbuild_query(nullptr, &args, &info), kInvalid, {"library is null"});
  expect(aotbuild_attention_forward(handle, nullptr), kInvalid, {"args is null"});
  expect(aotbuild_attention_forward(nullptr, nullptr), kInvalid, {"library is null"});
  expect(aotbuild_attention_forward_query(handle, nullptr, &info), kInvalid, {"args is null"});
  expect(aotbuild_describe(nullptr, nullptr, nullptr, 0, &needed), kInvalid, {"library is null"});
  expect(aotbuild_describe(handle, nullptr, nullptr, 0, nullptr), kInvalid, {"needed is null"});
  expect(aotbuild_describe(handle, nullptr, nullptr, 9, &needed), kInvalid, {"text is null"});
  expect(aotbuild_device_arch(2, 0, nullptr, 9), kInvalid, {"arch is null"});
  aotbuild_close(nullptr);
}

TEST_F(Api, NullPartsOfACallAreRefused) {
  constexpr aotbuild_status kInvalid = AOTBUILD_ERROR_INVALID_ARGUMENT;
  args.family = nullptr;
  expect(aotbuild_launch(library.get(), &args), kInvalid, {"args->family is null"});
  args.family = "test";
  args.op = nullptr;
  expect(aotbuild_launch(library.get(), &args), kInvalid, {"args->op is null"});
  args.op = "forward";
  args.args = nullptr;
  expect(aotbuild_launch(library.get(), &args), kInvalid, {"args->args is null"});
  args.args = list;
  list[1].name = nullptr;
  expect(aotbuild_launch(library.get(), &args), kInvalid, {"args->args[1].name is null"});
  list[1].name = "out";
  list[3].kind = 4;
  expect(aotbuild_launch(library.get(), &args), kInvalid, {"args->args[3] (fast)", "kind 4"});
  args.arg_count = 0;
  args.args = nullptr;
  expect(aotbuild_launch(library.get(), &args), kInvalid, {"no tensor"});
}

TEST_F(Api, UnknownStructSizesAreRefused) {
  constexpr aotbuild_status kInvalid = AOTBUILD_ERROR_INVALID_ARGUMENT;
  for (const size_t size : {size_t{0}, sizeof(args) - 8, sizeof(args) + 8}) {
    args.struct_size = size;
    expect(aotbuild_launch(library.get(), &args), kInvalid,
           {"args->struct_size is " + std::to_string(size), "AOTBUILD_INIT"});
  }
  args.struct_size = sizeof(args);
  info.struct_size = 0;
  expect(aotbuild_query(library.get(), &args, &info), kInvalid, {"info->struct_size"});
  aotbuild_attention_forward_args attention = {};
  expect(aotbuild_attention_forward(library.get(), &attention), kInvalid, {"args->struct_size"});
  aotbuild_open_options options = {};
  aotbuild_library* handle = library.get();
  expect(aotbuild_open(&options, &handle), kInvalid, {"options->struct_size"});
  EXPECT_EQ(handle, nullptr);
}

TEST_F(Api, WrongOptionsAreRefused) {
  constexpr aotbuild_status kInvalid = AOTBUILD_ERROR_INVALID_ARGUMENT;
  const char* paths[] = {"/somewhere", nullptr};
  aotbuild_open_options options = AOTBUILD_INIT(aotbuild_open_options);
  aotbuild_library* handle = nullptr;
  options.path_count = 2;
  expect(aotbuild_open(&options, &handle), kInvalid, {"options->paths is null"});
  options.paths = paths;
  expect(aotbuild_open(&options, &handle), kInvalid, {"options->paths[1] is null"});
  paths[1] = "";
  expect(aotbuild_open(&options, &handle), kInvalid, {"options->paths[1] is empty"});
  options.path_count = 1;
  options.wheel_count = 2;
  expect(aotbuild_open(&options, &handle), kInvalid, {"options->wheel_paths is null"});
  options.wheel_paths = paths;
  expect(aotbuild_open(&options, &handle), kInvalid, {"options->wheel_paths[1] is empty"});
  options.wheel_count = 1;
  options.paths_only = 2;
  expect(aotbuild_open(&options, &handle), kInvalid, {"paths_only is 2"});
  for (const size_t size : {size_t{24}, size_t{40}, sizeof(options) + 8}) {
    options.struct_size = size;
    expect(aotbuild_open(&options, &handle), kInvalid,
           {"options->struct_size is " + std::to_string(size)});
  }
  EXPECT_EQ(handle, nullptr);
}

TEST_F(Api, OptionsThatEndBeforeTheWheelsAreTaken) {
  const char* paths[] = {"/given"};
  auto options = AOTBUILD_INIT(aotbuild_open_options);
  options.struct_size = offsetof(aotbuild_open_options, wheel_paths);
  options.paths = paths;
  options.path_count = 1;
  options.wheel_paths = reinterpret_cast<const char* const*>(8);  // not the caller's to know
  options.wheel_count = 9;
  aotbuild_library* handle = nullptr;
  expect(aotbuild_open(&options, &handle), AOTBUILD_OK);
  const char* directory = nullptr;
  const char* origin = nullptr;
  expect(aotbuild_search_entry(handle, 0, &directory, &origin), AOTBUILD_OK);
  EXPECT_STREQ(directory, "/given");
  EXPECT_STREQ(origin, "set by API");
  aotbuild_close(handle);
}

TEST_F(Api, SearchEntriesEndWithNull) {
  constexpr aotbuild_status kInvalid = AOTBUILD_ERROR_INVALID_ARGUMENT;
  const char* directory = nullptr;
  const char* origin = nullptr;
  const aotbuild_library* handle = library.get();
  expect(aotbuild_search_entry(nullptr, 0, &directory, &origin), kInvalid, {"library is null"});
  expect(aotbuild_search_entry(handle, 0, nullptr, &origin), kInvalid, {"directory is null"});
  expect(aotbuild_search_entry(handle, 0, &directory, nullptr), kInvalid, {"origin is null"});
  expect(aotbuild_search_entry(handle, 0, &directory, &origin), AOTBUILD_OK);
  EXPECT_EQ(directory, this->directory.path().string());
  for (const size_t index : {size_t{1}, SIZE_MAX}) {
    directory = origin = "something";
    expect(aotbuild_search_entry(handle, index, &directory, &origin), AOTBUILD_OK);
    EXPECT_EQ(directory, nullptr);
    EXPECT_EQ(origin, nullptr);
  }
}

TEST_F(Api, AFailedQueryLeavesTheInfoAlone) {
  info.threads = 77;
  args.op = "backward";
  expect(aotbuild_query(library.get(), &args, &info), AOTBUILD_ERROR_NO_IMAGE, {"backward"});
  EXPECT_EQ(info.threads, 77U);
  EXPECT_EQ(info.pack, nullptr);
}

TEST_F(Api, MessagesBelongToTheirThread) {
  expect(aotbuild_launch(library.get(), nullptr), AOTBUILD_ERROR_INVALID_ARGUMENT);
  std::thread([] { EXPECT_STREQ(aotbuild_last_error(), ""); }).join();
  expect(aotbuild_launch(library.get(), &args), AOTBUILD_OK);
  EXPECT_STREQ(aotbuild_last_error(), "args is null");  // of the last call that failed
}

TEST_F(Api, StatusesHaveNames) {
  EXPECT_STREQ(aotbuild_status_name(AOTBUILD_OK), "AOTBUILD_OK");
  EXPECT_STREQ(aotbuild_status_name(AOTBUILD_ERROR_NO_PACK), "AOTBUILD_ERROR_NO_PACK");
  EXPECT_STREQ(aotbuild_status_name(AOTBUILD_ERROR_INTERNAL), "AOTBUILD_ERROR_INTERNAL");
  EXPECT_STREQ(aotbuild_status_name(15), "unknown status");
  EXPECT_STREQ(aotbuild_status_name(-1), "unknown status");
  for (aotbuild_status status = 0; status <= AOTBUILD_ERROR_INTERNAL; ++status) {
    EXPECT_EQ(std::string(aotbuild_status_name(status)).substr(0, 9), "AOTBUILD_") << status;
  }
}

TEST_F(Api, Versions) {
  EXPECT_EQ(aotbuild_abi_version(), AOTBUILD_ABI_VERSION);
  const std::string version = aotbuild_version();
  EXPECT_EQ(version.find_first_not_of("0123456789."), std::string::npos) << version;
  EXPECT_EQ(std::count(version.begin(), version.end(), '.'), 2) << version;
}

TEST_F(Api, LaunchAndQuery) {
  expect(aotbuild_query(library.get(), &args, &info), AOTBUILD_OK);
  EXPECT_STREQ(info.image, "b_aligned");
  EXPECT_EQ(info.grid[0], 1U);
  EXPECT_EQ(info.struct_size, sizeof(info));
  EXPECT_EQ(cuda.modules(), 0);
  expect(aotbuild_launch(library.get(), &args), AOTBUILD_OK);
  EXPECT_EQ(cuda.launches().size(), 1U);
}

// Through the whole runtime: dispatch on the tensor's promises, a tensor map in the arguments.
TEST_F(Api, ATensorMapIsPassedByValue) {
  FakeTensor wide({128, 64}, kFloat16, 0x30000);
  FakeTensor wide_out({128, 64}, kFloat16, 0x40000);
  list[0].value.tensor = wide.get();
  list[1].value.tensor = wide_out.get();
  list[3].value.integer = 1;
  list[4].value.real = 2.0;
  expect(aotbuild_query(library.get(), &args, &info), AOTBUILD_OK);
  EXPECT_STREQ(info.image, "a_descriptor");
  cuda.set_parameters({128, 8, 8, 8, 4, 4, 1, 4, 8, 8});
  expect(aotbuild_launch(library.get(), &args), AOTBUILD_OK);
  const auto record = cuda.launches().at(0);
  uint64_t address = 0;
  std::memcpy(&address, record.arguments[0].data(), sizeof(address));
  EXPECT_EQ(address, 0x30000U);
  // An address that a tensor map cannot take: the next image, without one.
  wide->byte_offset = 8;
  expect(aotbuild_query(library.get(), &args, &info), AOTBUILD_OK);
  EXPECT_STREQ(info.image, "c_general");
}

TEST_F(Api, KnownFailuresAreRefusedWithTheirReason) {
  x->dtype.bits = out->dtype.bits = 32;
  expect(aotbuild_launch(library.get(), &args), AOTBUILD_ERROR_UNSUPPORTED, {"wrong numbers"});
}

TEST_F(Api, DeviceArch) {
  char arch[32];
  expect(aotbuild_device_arch(2, 1, arch, sizeof(arch)), AOTBUILD_OK);
  EXPECT_STREQ(arch, "sm_90");
  expect(aotbuild_device_arch(2, 1, arch, 6), AOTBUILD_OK);
  expect(aotbuild_device_arch(2, 1, arch, 5), AOTBUILD_ERROR_INVALID_ARGUMENT,
         {"size is 5", "'sm_90' takes 6"});
  expect(aotbuild_device_arch(1, 0, arch, 32), AOTBUILD_ERROR_INVALID_ARGUMENT, {"device type 1"});
  expect(aotbuild_device_arch(2, 2, arch, 32), AOTBUILD_ERROR_INVALID_ARGUMENT, {"device 2"});
}

TEST_F(Api, DescribeCutsWhatDoesNotFit) {
  const std::string whole = library.describe("sm_90");
  EXPECT_NE(whole.find("test.aotpack"), std::string::npos);
  size_t needed = 0;
  char text[9] = "????????";
  expect(aotbuild_describe(library.get(), "sm_90", text, 8, &needed), AOTBUILD_OK);
  EXPECT_EQ(needed, whole.size() + 1);
  EXPECT_EQ(std::string(text), whole.substr(0, 7));
  EXPECT_EQ(text[8], '\0');
  expect(aotbuild_describe(library.get(), "SM 90", text, 8, &needed),
         AOTBUILD_ERROR_INVALID_ARGUMENT, {"SM 90"});
}

TEST_F(Api, CppErrorsCarryStatusAndMessage) {
  try {
    aotbuild::device_arch(2, 9);
    ADD_FAILURE() << "no error";
  } catch (const aotbuild::Error& error) {
    EXPECT_EQ(error.status(), AOTBUILD_ERROR_INVALID_ARGUMENT);
    EXPECT_STREQ(error.what(),
                 "AOTBUILD_ERROR_INVALID_ARGUMENT: there is no CUDA device 9: the driver shows 2");
  }
  EXPECT_THROW(library.attention_forward(AOTBUILD_INIT(aotbuild_attention_forward_args)),
               aotbuild::Error);
  EXPECT_THROW(library.query(AOTBUILD_INIT(aotbuild_attention_forward_args)), aotbuild::Error);
}

TEST_F(Api, CppLibrariesMove) {
  library.launch(args);
  EXPECT_EQ(cuda.modules(), 1);
  aotbuild::Library moved(std::move(library));
  EXPECT_EQ(std::string(moved.query(args).image), "b_aligned");
  moved.launch(args);
  EXPECT_EQ(cuda.modules(), 1);
  moved = aotbuild::Library({}, true);
  library = std::move(moved);  // NOLINT(bugprone-use-after-move): it was given a value
  EXPECT_EQ(library.describe().find("sm_90"), std::string::npos);
}

}  // namespace
