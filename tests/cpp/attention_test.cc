#include "attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime_fixture.h"

namespace aotbuild {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): the words of these tests
using format::SourceKind;
using format::Type;

constexpr uint16_t kBfloat16 = 4 | 16 << 8;
constexpr int32_t kMin32 = std::numeric_limits<int32_t>::min();
constexpr int32_t kMax32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kUnlimited = AOTBUILD_UNLIMITED;

// What kernels are told, against the words of aotbuild.h applied to every pair.
TEST(AttentionWindow, AgreesWithTheDefinition) {
  for (int align : {AOTBUILD_ALIGN_UPPER_LEFT, AOTBUILD_ALIGN_LOWER_RIGHT}) {
    for (int64_t q : {0, 1, 3, 7}) {
      for (int64_t k : {0, 1, 4, 6}) {
        for (int64_t left : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{9}, kUnlimited}) {
          for (int64_t right : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{9}, kUnlimited}) {
            const Window window = attention_window(left, right, align, q, k);
            bool cuts = false;
            for (int64_t i = 0; i < q; ++i) {
              const int64_t p = align == AOTBUILD_ALIGN_LOWER_RIGHT ? i + k - q : i;
              for (int64_t j = 0; j < k; ++j) {
                const bool visible = (left == kUnlimited || p - left <= j) &&
                                     (right == kUnlimited || j <= p + right);
                EXPECT_EQ(window.low <= j - i && j - i <= window.high, visible)
                    << i << " " << j << " of " << q << " " << k << ", " << left << " " << right;
                cuts = cuts || !visible;
              }
            }
            EXPECT_EQ(window.cuts, cuts) << q << " " << k << ", " << left << " " << right;
          }
        }
      }
    }
  }
}

void expect_window(const Window& window, int32_t low, int32_t high, bool cuts) {
  EXPECT_EQ(window.low, low);
  EXPECT_EQ(window.high, high);
  EXPECT_EQ(window.cuts, cuts);
}

TEST(AttentionWindow, Saturates) {
  constexpr int upper = AOTBUILD_ALIGN_UPPER_LEFT;
  constexpr int lower = AOTBUILD_ALIGN_LOWER_RIGHT;
  expect_window(attention_window(kUnlimited, kUnlimited, upper, 5, 7), kMin32, kMax32, false);
  expect_window(attention_window(kUnlimited, kUnlimited, lower, kMax32, 1), kMin32, kMax32, false);
  expect_window(attention_window(kUnlimited - 1, kUnlimited - 1, lower, 1, kMax32), kMin32, kMax32,
                false);
  expect_window(attention_window(kUnlimited - 1, kUnlimited - 1, lower, kMax32, 1), kMin32, kMax32,
                false);
  expect_window(attention_window(kUnlimited, 0, upper, 5, 7), kMin32, 0, true);
  expect_window(attention_window(int64_t{1} << 31, 0, upper, 5, 5), kMin32, 0, true);
  expect_window(attention_window((int64_t{1} << 31) - 1, 0, upper, 5, 5), -kMax32, 0, true);
  // The shift is -(2^31 - 2): a bound of 2^31 reaches just beyond what 32 bits hold, on one side.
  expect_window(attention_window(2, int64_t{1} << 31, lower, kMax32, 1), kMin32, 2, false);
  expect_window(attention_window(1, 1, lower, kMax32, 1), -kMax32, 3 - kMax32 - 1, true);
  expect_window(attention_window(0, 1, lower, 1, kMax32), kMax32 - 1, kMax32, true);
  expect_window(attention_window(0, 9, lower, 1, kMax32), kMax32 - 1, kMax32, true);
}

// attention.forward with the values and tensors of kernels/attention/spec.py.
PackBuilder attention_pack(uint32_t contract = 1) {
  PackBuilder pack;
  pack.family = "attention";
  for (const char* name : {"q", "k", "v", "out"}) {
    const bool first = pack.tensors.empty();
    const uint8_t written = name[0] == 'o' ? format::kWritten : 0;
    pack.add_tensor(name, 4, format::kContiguousLast | written, 0, first ? format::kNone : 0);
  }
  pack.add_tensor("lse", 3, format::kContiguousLast | format::kOptional | format::kWritten,
                  kFloat32);
  pack.add_column("dtype", format::Mode::kEqual, SourceKind::kDtype, "q");
  pack.add_column("head_dim", format::Mode::kAtLeast, SourceKind::kSize, "q", 3);
  pack.add_column("tf32", format::Mode::kAtMost, SourceKind::kValue, "tf32");
  pack.add_column("windowed", format::Mode::kAtLeast, SourceKind::kValue, "windowed");
  uint32_t image = 0;
  for (const uint16_t dtype : {kFloat16, kBfloat16, kFloat32}) {
    pack.add_row({dtype, 256, 1, 0}, image++);
    pack.add_row({dtype, 256, 1, 1}, image++);
    pack.add_row({dtype, 256, 0, 0}, image++);
    pack.add_row({dtype, 256, 0, 1}, image++);
  }
  pack.add_operator("forward", contract);
  for (uint32_t i = 0; i < image; ++i) {
    const std::string number = std::to_string(10 + i);
    pack.add_image("image" + number, fake_code(pack.vendor, 90, number));
    for (const char* name : {"q", "k", "v", "out", "lse"}) {
      pack.add_argument(name, Type::kPointer, SourceKind::kPointer, name);
    }
    pack.add_argument("has_lse", Type::kI32, SourceKind::kPresent, "lse");
    pack.add_argument("scale", Type::kFp32, SourceKind::kValue, "scale");
    pack.add_argument("window_low", Type::kI32, SourceKind::kValue, "window_low");
    pack.add_argument("window_high", Type::kI32, SourceKind::kValue, "window_high");
    pack.add_argument("global_scratch", Type::kPointer, SourceKind::kGlobalScratch);
    pack.add_argument("profile_scratch", Type::kPointer, SourceKind::kProfileScratch);
    pack.add_factor(0, SourceKind::kSize, "q", 2, 64);
    pack.add_factor(0, SourceKind::kSize, "q", 1, 1);
    pack.add_factor(0, SourceKind::kSize, "q", 0, 1);
  }
  return pack;
}

struct Shape {
  int64_t batch = 2, heads_q = 4, heads_k = 2, seqlen_q = 100, seqlen_k = 200, head_dim = 64;
};

struct AttentionCall {
  explicit AttentionCall(const Shape& shape = {}, uint16_t dtype = kFloat16)
      : q({shape.batch, shape.heads_q, shape.seqlen_q, shape.head_dim}, dtype, 0x10000),
        k({shape.batch, shape.heads_k, shape.seqlen_k, shape.head_dim}, dtype, 0x20000),
        v({shape.batch, shape.heads_k, shape.seqlen_k, shape.head_dim}, dtype, 0x30000),
        out({shape.batch, shape.heads_q, shape.seqlen_q, shape.head_dim}, dtype, 0x40000),
        lse({shape.batch, shape.heads_q, shape.seqlen_q}, kFloat32, 0x50000) {
    args.q = q.get();
    args.k = k.get();
    args.v = v.get();
    args.out = out.get();
    args.lse = lse.get();
    args.scale = 0.125;
    args.window_left = AOTBUILD_UNLIMITED;
    args.window_right = AOTBUILD_UNLIMITED;
  }

  FakeTensor q, k, v, out, lse;
  aotbuild_attention_forward_args args = AOTBUILD_INIT(aotbuild_attention_forward_args);
};

class AttentionTest : public RuntimeTest {
 protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    install(attention_pack());
    library = open();
    cuda.set_parameters({8, 8, 8, 8, 8, 4, 4, 4, 4, 8, 8});
  }
  // Changes a good call, and expects it to be refused in these words.
  template <class Change>
  void refuse(std::initializer_list<std::string> pieces, Change change) {
    AttentionCall call;
    change(call);
    expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, pieces, [&] { attention(*library, call.args); });
    aotbuild_launch_info info = AOTBUILD_INIT(aotbuild_launch_info);
    expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, pieces,
                 [&] { attention_query(*library, call.args, &info); });
    EXPECT_TRUE(cuda.launches().empty());
  }
  std::string image_of(const AttentionCall& call) {
    aotbuild_launch_info info = AOTBUILD_INIT(aotbuild_launch_info);
    attention_query(*library, call.args, &info);
    return info.image;
  }

  std::unique_ptr<aotbuild_library> library;
};

TEST_F(AttentionTest, NullTensorsAreRefused) {
  refuse({"q is null"}, [](AttentionCall& call) { call.args.q = nullptr; });
  refuse({"k is null"}, [](AttentionCall& call) { call.args.k = nullptr; });
  refuse({"v is null"}, [](AttentionCall& call) { call.args.v = nullptr; });
  refuse({"out is null"}, [](AttentionCall& call) { call.args.out = nullptr; });
  refuse({"q has a null shape"}, [](AttentionCall& call) { call.q->shape = nullptr; });
  refuse({"'v'", "null data"}, [](AttentionCall& call) { call.v->data = nullptr; });
}

TEST_F(AttentionTest, WrongShapesAreRefused) {
  refuse({"q has 3 dimensions, expected 4"}, [](AttentionCall& call) { call.q->ndim = 3; });
  refuse({"lse has 2 dimensions, expected 3"}, [](AttentionCall& call) { call.lse->ndim = 2; });
  refuse({"k has shape (3, 2, 200, 64)", "(B, Hk, Sk, D)", "(2, 4, 100, 64)"},
         [](AttentionCall& call) { call.k->shape[0] = 3; });
  refuse({"k has shape (2, 2, 200, 32)"}, [](AttentionCall& call) { call.k->shape[3] = 32; });
  refuse({"v has shape (2, 2, 201, 64)", "that of k, (2, 2, 200, 64)"},
         [](AttentionCall& call) { call.v->shape[2] = 201; });
  refuse({"out has shape (2, 4, 101, 64)", "(B, Hq, Sq, D)"},
         [](AttentionCall& call) { call.out->shape[2] = 101; });
  refuse({"lse has shape (2, 3, 100)", "(B, Hq, Sq)"},
         [](AttentionCall& call) { call.lse->shape[1] = 3; });
  refuse({"q has shape (2, 4, -1, 64)"}, [](AttentionCall& call) { call.q->shape[2] = -1; });
  refuse({"k has shape", "2147483648"},
         [](AttentionCall& call) { call.k->shape[2] = int64_t{1} << 31; });
}

TEST_F(AttentionTest, WrongHeadsAndHeadDimensionsAreRefused) {
  refuse({"q has 4 heads and k 3"},
         [](AttentionCall& call) { call.k->shape[1] = call.v->shape[1] = 3; });
  refuse({"q has 4 heads and k 8"},
         [](AttentionCall& call) { call.k->shape[1] = call.v->shape[1] = 8; });
  refuse({"q has 4 heads and k 0"},
         [](AttentionCall& call) { call.k->shape[1] = call.v->shape[1] = 0; });
  for (const int64_t head_dim : {0, 257}) {
    refuse({"head dimension must be 1 to 256", std::to_string(head_dim)}, [&](AttentionCall& call) {
      for (FakeTensor* tensor : {&call.q, &call.k, &call.v, &call.out}) {
        (*tensor)->shape[3] = head_dim;
      }
    });
  }
}

TEST_F(AttentionTest, WrongTypesAreRefused) {
  refuse({"q has dtype float64"}, [](AttentionCall& call) { call.q->dtype.bits = 64; });
  refuse({"k has dtype bfloat16", "expected float16"},
         [](AttentionCall& call) { call.k->dtype.code = 4; });
  refuse({"out has dtype float32", "expected float16"},
         [](AttentionCall& call) { call.out->dtype.bits = 32; });
  refuse({"v has dtype float16 with 2 lanes"},
         [](AttentionCall& call) { call.v->dtype.lanes = 2; });
  refuse({"lse has dtype float16", "expected float32"},
         [](AttentionCall& call) { call.lse->dtype.bits = 16; });
}

TEST_F(AttentionTest, WrongStridesAreRefused) {
  refuse({"'q'", "stride 2", "last dimension"},
         [](AttentionCall& call) { call.q.set_strides({51200, 12800, 128, 2}); });
  refuse({"'k'", "stride -64"},
         [](AttentionCall& call) { call.k.set_strides({25600, 12800, -64, 1}); });
  refuse({"out has stride 0 in dimension 1 of size 4"},
         [](AttentionCall& call) { call.out.set_strides({6400, 0, 64, 1}); });
  refuse({"lse has stride 0 in dimension 0 of size 2"},
         [](AttentionCall& call) { call.lse.set_strides({0, 100, 1}); });
}

TEST_F(AttentionTest, WrongNumbersAreRefused) {
  for (const double scale : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    refuse({"scale is", "finite"}, [&](AttentionCall& call) { call.args.scale = scale; });
  }
  refuse({"'scale'", "fp32"}, [](AttentionCall& call) { call.args.scale = 1e39; });
  refuse({"-1 to the left", "AOTBUILD_UNLIMITED"},
         [](AttentionCall& call) { call.args.window_left = -1; });
  refuse({"-5 to the right"}, [](AttentionCall& call) { call.args.window_right = -5; });
  refuse({"window_align is 2"}, [](AttentionCall& call) { call.args.window_align = 2; });
  refuse({"allow_tf32 is -1"}, [](AttentionCall& call) { call.args.allow_tf32 = -1; });
}

TEST_F(AttentionTest, TensorsOfTwoDevicesAreRefused) {
  refuse({"'k'", "2:1", "2:0"}, [](AttentionCall& call) { call.k->device.device_id = 1; });
  refuse({"'lse'", "10:0"}, [](AttentionCall& call) {
    call.lse->device.device_type = 10;
    call.q->shape[0] = call.k->shape[0] = call.v->shape[0] = call.out->shape[0] =
        call.lse->shape[0] = 0;  // also when there is nothing to compute
  });
}

TEST_F(AttentionTest, APackOfAnotherContractIsRefused) {
  install(attention_pack(7), "later");
  const auto later = open({"later"});
  expect_error(AOTBUILD_ERROR_CONTRACT, {"contract 7", "contract 1", "attention.forward"},
               [&] { attention(*later, AttentionCall().args); });
}

TEST_F(AttentionTest, NothingToComputeNeedsNoPackAndNoDriver) {
  const auto empty = open({"nowhere"});
  for (Shape shape : {Shape{0}, Shape{2, 0}, Shape{2, 4, 2, 0}}) {
    AttentionCall call(shape);
    attention(*empty, call.args);
    aotbuild_launch_info info = AOTBUILD_INIT(aotbuild_launch_info);
    attention_query(*empty, call.args, &info);
    EXPECT_STREQ(info.image, "");
    EXPECT_STREQ(info.pack, "");
    EXPECT_EQ(info.workspace_size, 0U);
  }
  EXPECT_TRUE(cuda.launches().empty());
}

TEST_F(AttentionTest, NoKeysIsStillALaunch) {
  AttentionCall call({2, 4, 2, 100, 0, 64});
  call.k->data = call.v->data = nullptr;
  attention(*library, call.args);
  EXPECT_EQ(cuda.launches().size(), 1U);
}

TEST_F(AttentionTest, ArgumentsReachTheKernel) {
  AttentionCall call;
  call.args.window_left = 30;
  call.args.window_right = 2;
  call.args.window_align = AOTBUILD_ALIGN_LOWER_RIGHT;
  void* stream = cuda.make_stream(0);
  call.args.stream = stream;
  attention(*library, call.args);
  ASSERT_EQ(cuda.launches().size(), 1U);
  const RecordedLaunch record = cuda.launches()[0];
  EXPECT_EQ(record.stream, stream);
  EXPECT_EQ(record.grid, (std::vector<unsigned>{2 * 4 * 2, 1, 1}));
  ASSERT_EQ(record.arguments.size(), 11U);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(read<uint64_t>(record.arguments[i]), 0x10000U * (i + 1));
  }
  EXPECT_EQ(read<int32_t>(record.arguments[5]), 1);
  EXPECT_EQ(read<float>(record.arguments[6]), 0.125F);
  EXPECT_EQ(read<int32_t>(record.arguments[7]), 200 - 100 - 30);
  EXPECT_EQ(read<int32_t>(record.arguments[8]), 200 - 100 + 2);
}

TEST_F(AttentionTest, LseMayBeAbsent) {
  AttentionCall call;
  call.args.lse = nullptr;
  attention(*library, call.args);
  const RecordedLaunch record = cuda.launches().at(0);
  EXPECT_EQ(read<uint64_t>(record.arguments[4]), 0U);
  EXPECT_EQ(read<int32_t>(record.arguments[5]), 0);
}

TEST_F(AttentionTest, WindowsThatCutNothingUseUnmaskedCode) {
  AttentionCall call;
  EXPECT_EQ(image_of(call), "image12");
  call.args.window_left = 99;
  call.args.window_right = 199;
  EXPECT_EQ(image_of(call), "image12");
  call.args.window_left = 98;
  EXPECT_EQ(image_of(call), "image13");
  call.args.window_left = AOTBUILD_UNLIMITED;
  call.args.window_right = 198;
  EXPECT_EQ(image_of(call), "image13");
}

TEST_F(AttentionTest, Tf32IsOnlyUsedWhereAskedFor) {
  AttentionCall half;
  half.args.allow_tf32 = 1;
  EXPECT_EQ(image_of(half), "image12");  // says nothing about float16
  AttentionCall single({}, kFloat32);
  EXPECT_EQ(image_of(single), "image20");
  single.args.allow_tf32 = 1;
  EXPECT_EQ(image_of(single), "image18");
  EXPECT_EQ(image_of(AttentionCall({}, kBfloat16)), "image16");
}

}  // namespace
}  // namespace aotbuild
