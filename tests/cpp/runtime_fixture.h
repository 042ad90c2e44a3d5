// A library over packs that a test makes, on the stand-in drivers.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "driver.h"
#include "expect_error.h"
#include "fake_driver.h"
#include "launch.h"
#include "library.h"
#include "pack_builder.h"
#include "temporary_directory.h"

namespace aotbuild::test {

// Operator "scale" of tensors x and out (rank 2), and the real value "factor": one image, with
// arguments x, out, rows (i64), columns (i32), factor (fp32) and the scratch pointers; a program
// for each 64 rows.
inline PackBuilder simple_pack(format::Vendor vendor = format::Vendor::kCuda) {
  using format::SourceKind;
  using format::Type;
  const bool cuda = vendor == format::Vendor::kCuda;
  PackBuilder pack;
  pack.vendor = vendor;
  pack.arch = cuda ? "sm_90" : "gfx942";
  pack.warp_size = cuda ? 32 : 64;
  pack.add_tensor("x", 2, format::kContiguousLast, 0);
  pack.add_tensor("out", 2, format::kContiguousLast | format::kWritten, 0, 0);
  pack.add_column("dtype", format::Mode::kEqual, SourceKind::kDtype, "x");
  pack.add_row({kFloat16}, 0);
  pack.add_operator("scale");
  pack.add_image("image", fake_code(vendor, cuda ? 90 : 0x54C, "code"));
  pack.add_argument("x", Type::kPointer, SourceKind::kPointer, "x");
  pack.add_argument("out", Type::kPointer, SourceKind::kPointer, "out");
  pack.add_argument("rows", Type::kI64, SourceKind::kSize, "x", 0);
  pack.add_argument("columns", Type::kI32, SourceKind::kSize, "x", 1);
  pack.add_argument("factor", Type::kFp32, SourceKind::kValue, "factor");
  pack.add_argument("global_scratch", Type::kPointer, SourceKind::kGlobalScratch);
  pack.add_argument("profile_scratch", Type::kPointer, SourceKind::kProfileScratch);
  pack.add_factor(0, SourceKind::kSize, "x", 0, 64);
  return pack;
}

inline const std::vector<size_t> kSimpleParameters = {8, 8, 8, 4, 4, 8, 8};

template <class T>
T read(const std::vector<uint8_t>& bytes) {
  T value = {};
  EXPECT_EQ(bytes.size(), sizeof(value));
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof(value)));
  return value;
}

// A call of simple_pack's operator.
struct SimpleCall {
  explicit SimpleCall(int32_t device_type = kDeviceCuda, int32_t device_id = 0, int64_t rows = 128)
      : x({rows, 32}, kFloat16, 0x10000), out({rows, 32}, kFloat16, 0x20000) {
    for (FakeTensor* tensor : {&x, &out}) {
      (*tensor)->device.device_type = device_type;
      (*tensor)->device.device_id = device_id;
    }
    call.add("x", x.get());
    call.add("out", out.get());
    call.add("factor", 0.5);
  }
  LaunchRequest request(aotbuild_stream stream = nullptr) const {
    return {"test", "scale", kAnyContract, call, stream, nullptr, 0};
  }

  FakeTensor x;
  FakeTensor out;
  Call call;
};

class RuntimeTest : public testing::Test {
 protected:
  void SetUp() override {
    cuda.reset();
    hip.reset();
  }
  void TearDown() override {
    EXPECT_EQ(cuda.complaints(), std::vector<std::string>());
    EXPECT_EQ(hip.complaints(), std::vector<std::string>());
  }

  std::string install(const PackBuilder& pack, const std::string& root = "packs") {
    return directory.write(root + "/" + pack.arch + "/" + pack.family + ".aotpack", pack.build());
  }
  std::unique_ptr<aotbuild_library> open(const std::vector<std::string>& roots = {"packs"}) {
    std::vector<std::string> paths;
    std::vector<const char*> pointers;
    for (const std::string& root : roots) paths.push_back((directory.path() / root).string());
    for (const std::string& path : paths) pointers.push_back(path.c_str());
    aotbuild_open_options options = AOTBUILD_INIT(aotbuild_open_options);
    options.paths = pointers.data();
    options.path_count = pointers.size();
    options.paths_only = 1;
    return std::make_unique<aotbuild_library>(&options);
  }
  FakeDriver& fake(int32_t device_type) { return device_type == kDeviceCuda ? cuda : hip; }

  TemporaryDirectory directory;
  FakeDriver& cuda = load_fake(AOTBUILD_FAKE_CUDA);
  FakeDriver& hip = load_fake(AOTBUILD_FAKE_HIP);
};

}  // namespace aotbuild::test
