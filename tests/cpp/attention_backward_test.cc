// attention.backward: three kernels of one call, on the stand-in driver.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention.h"
#include "runtime_fixture.h"

namespace aotbuild {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace): the words of these tests
using format::SourceKind;
using format::Type;

constexpr uint64_t kWorkspace = 0x900000;
// B * Hq * Sq floats are 3200 bytes; the next multiple of 256 is where the scratch begins.
constexpr uint64_t kScratchOffset = 3328;

// The three operators with the tensors and values of kernels/attention/spec.py. Their kernels take
// seven arguments of 8 bytes, as the stand-in driver has one list for all.
PackBuilder backward_pack(uint32_t contract = 1, uint32_t scratch = 0) {
  PackBuilder pack;
  pack.family = "attention";
  const auto add_operand = [&](const char* name, uint32_t first, uint8_t flags = 0) {
    pack.add_tensor(name, 4, format::kContiguousLast | flags, 0, first);
  };
  const auto add_rows = [&](const char* name, uint8_t flags = 0) {
    pack.add_tensor(name, 3, format::kContiguousLast | flags, kFloat32);
  };
  uint32_t image = 0;
  const auto end_operator = [&](const char* name, const std::vector<int64_t>& rest = {}) {
    for (const uint16_t dtype : {kFloat16, kFloat32}) {
      std::vector<int64_t> row = {dtype};
      row.insert(row.end(), rest.begin(), rest.end());
      pack.add_row(row, image++);
    }
    pack.add_operator(name, contract);
  };
  add_operand("out", format::kNone);
  add_operand("dout", 0);
  add_rows("delta", format::kWritten);
  pack.add_column("dtype", format::Mode::kEqual, SourceKind::kDtype, "out");
  end_operator("backward_delta");
  for (const bool keys : {true, false}) {
    add_operand("q", format::kNone);
    for (const char* name : {"k", "v", "dout"}) add_operand(name, 0);
    add_rows("lse");
    add_rows("delta");
    if (keys) {
      add_operand("dk", 0, format::kWritten);
      add_operand("dv", 0, format::kWritten);
    } else {
      add_operand("dq", 0, format::kWritten);
    }
    pack.add_column("dtype", format::Mode::kEqual, SourceKind::kDtype, "q");
    pack.add_column("tf32", format::Mode::kAtMost, SourceKind::kValue, "tf32");
    pack.add_column("windowed", format::Mode::kAtLeast, SourceKind::kValue, "windowed");
    end_operator(keys ? "backward_dkdv" : "backward_dq", {0, 1});
  }
  for (uint32_t i = 0; i < image; ++i) {
    const std::string number = std::to_string(10 + i);
    pack.add_image("image" + number, fake_code(pack.vendor, 90, number));
    pack.images.back().global_scratch = i == 2 ? scratch : 0;
    const char* rows = i < 2 ? "out" : i < 4 ? "k" : "q";
    const char* last = i < 2 ? "dout" : i < 4 ? "dk" : "dq";
    pack.add_argument("delta", Type::kPointer, SourceKind::kPointer, "delta");
    pack.add_argument(last, Type::kPointer, SourceKind::kPointer, last);
    if (i < 2) {
      pack.add_argument("out", Type::kPointer, SourceKind::kPointer, "out");
      pack.add_argument("rows", Type::kI64, SourceKind::kSize, "out", 2);
      pack.add_argument("head_dim", Type::kI64, SourceKind::kSize, "out", 3);
    } else {
      pack.add_argument("scale", Type::kFp64, SourceKind::kValue, "scale");
      pack.add_argument("window_low", Type::kI64, SourceKind::kValue, "window_low");
      pack.add_argument("window_high", Type::kI64, SourceKind::kValue, "window_high");
    }
    pack.add_argument("global_scratch", Type::kPointer, SourceKind::kGlobalScratch);
    pack.add_argument("profile_scratch", Type::kPointer, SourceKind::kProfileScratch);
    for (const int dim : {2, 1, 0}) {
      pack.add_factor(0, SourceKind::kSize, rows, dim, dim == 2 ? 64 : 1);
    }
  }
  return pack;
}

struct Shape {
  int64_t batch = 2, heads_q = 4, heads_k = 2, seqlen_q = 100, seqlen_k = 200, head_dim = 64;
};

struct BackwardCall {
  explicit BackwardCall(const Shape& shape = {}, uint16_t dtype = kFloat16)
      : q({shape.batch, shape.heads_q, shape.seqlen_q, shape.head_dim}, dtype, 0x10000),
        k({shape.batch, shape.heads_k, shape.seqlen_k, shape.head_dim}, dtype, 0x20000),
        v({shape.batch, shape.heads_k, shape.seqlen_k, shape.head_dim}, dtype, 0x30000),
        out({shape.batch, shape.heads_q, shape.seqlen_q, shape.head_dim}, dtype, 0x40000),
        lse({shape.batch, shape.heads_q, shape.seqlen_q}, kFloat32, 0x50000),
        dout({shape.batch, shape.heads_q, shape.seqlen_q, shape.head_dim}, dtype, 0x60000),
        dq({shape.batch, shape.heads_q, shape.seqlen_q, shape.head_dim}, dtype, 0x70000),
        dk({shape.batch, shape.heads_k, shape.seqlen_k, shape.head_dim}, dtype, 0x80000),
        dv({shape.batch, shape.heads_k, shape.seqlen_k, shape.head_dim}, dtype, 0x90000) {
    args.q = q.get();
    args.k = k.get();
    args.v = v.get();
    args.out = out.get();
    args.lse = lse.get();
    args.dout = dout.get();
    args.dq = dq.get();
    args.dk = dk.get();
    args.dv = dv.get();
    args.scale = 0.125;
    args.window_left = AOTBUILD_UNLIMITED;
    args.window_right = AOTBUILD_UNLIMITED;
    args.workspace = reinterpret_cast<void*>(uintptr_t{kWorkspace});
    args.workspace_size = kScratchOffset;
  }

  FakeTensor q, k, v, out, lse, dout, dq, dk, dv;
  aotbuild_attention_backward_args args = AOTBUILD_INIT(aotbuild_attention_backward_args);
};

class AttentionBackwardTest : public RuntimeTest {
 protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    install(backward_pack());
    library = open();
    cuda.set_parameters(std::vector<size_t>(7, 8));
  }
  // Changes a good call, and expects it to be refused in these words.
  template <class Change>
  void refuse(std::initializer_list<std::string> pieces, Change change) {
    BackwardCall call;
    change(call);
    expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, pieces, [&] { attention(*library, call.args); });
    aotbuild_launch_info info = AOTBUILD_INIT(aotbuild_launch_info);
    expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, pieces,
                 [&] { attention_query(*library, call.args, &info); });
    EXPECT_TRUE(cuda.launches().empty());
  }

  std::unique_ptr<aotbuild_library> library;
};

TEST_F(AttentionBackwardTest, WrongTensorsAreRefused) {
  refuse({"attention.backward: q is null"}, [](BackwardCall& call) { call.args.q = nullptr; });
  refuse({"lse is null"}, [](BackwardCall& call) { call.args.lse = nullptr; });
  refuse({"dout is null"}, [](BackwardCall& call) { call.args.dout = nullptr; });
  refuse({"dv is null"}, [](BackwardCall& call) { call.args.dv = nullptr; });
  refuse({"out has shape (2, 4, 99, 64)", "(B, Hq, Sq, D)"},
         [](BackwardCall& call) { call.out->shape[2] = 99; });
  refuse({"dout has dtype bfloat16", "expected float16"},
         [](BackwardCall& call) { call.dout->dtype.code = 4; });
  refuse({"dk has shape (2, 4, 200, 64)", "that of k, (2, 2, 200, 64)"},
         [](BackwardCall& call) { call.dk->shape[1] = 4; });
  refuse({"dv has 3 dimensions"}, [](BackwardCall& call) { call.dv->ndim = 3; });
  refuse({"lse has dtype float16", "expected float32"},
         [](BackwardCall& call) { call.lse->dtype.bits = 16; });
  refuse({"dq has stride 0 in dimension 1"},
         [](BackwardCall& call) { call.dq.set_strides({6400, 0, 64, 1}); });
  refuse({"dk has stride 0 in dimension 0"},
         [](BackwardCall& call) { call.dk.set_strides({0, 12800, 64, 1}); });
  refuse({"'dout'", "last dimension"},
         [](BackwardCall& call) { call.dout.set_strides({51200, 12800, 128, 2}); });
  refuse({"'dk'", "2:1"}, [](BackwardCall& call) { call.dk->device.device_id = 1; });
  refuse({"'dq'", "2:1"}, [](BackwardCall& call) { call.dq->device.device_id = 1; });
}

TEST_F(AttentionBackwardTest, WrongNumbersAreRefused) {
  refuse({"scale is", "finite"}, [](BackwardCall& call) { call.args.scale = std::nan(""); });
  refuse({"-1 to the left"}, [](BackwardCall& call) { call.args.window_left = -1; });
  refuse({"allow_tf32 is 2"}, [](BackwardCall& call) { call.args.allow_tf32 = 2; });
}

TEST_F(AttentionBackwardTest, AMissingWorkspaceIsRefused) {
  const auto refuse_workspace = [&](uintptr_t address, size_t size) {
    BackwardCall call;
    call.args.workspace = reinterpret_cast<void*>(address);
    call.args.workspace_size = size;
    expect_error(AOTBUILD_ERROR_WORKSPACE, {"3328 bytes aligned to 256", std::to_string(size)},
                 [&] { attention(*library, call.args); });
  };
  refuse_workspace(0, kScratchOffset);
  refuse_workspace(kWorkspace, kScratchOffset - 1);
  refuse_workspace(kWorkspace + 16, kScratchOffset);
  EXPECT_TRUE(cuda.launches().empty());
}

// The second kernel is what lacks room: the first must not have been launched by then.
TEST_F(AttentionBackwardTest, NothingIsLaunchedUnlessAllCanBe) {
  install(backward_pack(1, 64), "scratch");
  const auto needy = open({"scratch"});
  BackwardCall call;
  aotbuild_launch_info info = AOTBUILD_INIT(aotbuild_launch_info);
  attention_query(*needy, call.args, &info);
  const uint64_t programs = 4 * 2 * 2;  // tiles of 64 keys, KV heads, batch
  EXPECT_EQ(info.workspace_size, kScratchOffset + programs * 64);
  expect_error(AOTBUILD_ERROR_WORKSPACE, {"image12", "1024 bytes"},
               [&] { attention(*needy, call.args); });
  EXPECT_TRUE(cuda.launches().empty());
  call.args.workspace_size = info.workspace_size;
  attention(*needy, call.args);
  ASSERT_EQ(cuda.launches().size(), 3U);
  EXPECT_EQ(read<uint64_t>(cuda.launches()[1].arguments[5]), kWorkspace + kScratchOffset);
}

TEST_F(AttentionBackwardTest, APackWithoutBackwardIsRefused) {
  install(backward_pack(7), "later");
  const auto later = open({"later"});
  expect_error(AOTBUILD_ERROR_CONTRACT, {"contract 7", "attention.backward_delta"},
               [&] { attention(*later, BackwardCall().args); });
  PackBuilder forward = simple_pack();
  forward.family = "attention";
  install(forward, "forward");
  const auto without = open({"forward"});
  expect_error(AOTBUILD_ERROR_NO_IMAGE, {"has no operator", "backward_delta"},
               [&] { attention(*without, BackwardCall().args); });
}

TEST_F(AttentionBackwardTest, ThreeKernelsAreLaunchedInOrder) {
  BackwardCall call;
  call.args.window_left = 30;
  call.args.window_align = AOTBUILD_ALIGN_LOWER_RIGHT;
  void* stream = cuda.make_stream(0);
  call.args.stream = stream;
  attention(*library, call.args);
  const std::vector<RecordedLaunch> launches = cuda.launches();
  ASSERT_EQ(launches.size(), 3U);
  for (const RecordedLaunch& record : launches) {
    EXPECT_EQ(record.stream, stream);
    EXPECT_EQ(read<uint64_t>(record.arguments[0]), kWorkspace);  // delta
  }
  EXPECT_EQ(read<uint64_t>(launches[0].arguments[1]), 0x60000U);  // dout
  EXPECT_EQ(read<uint64_t>(launches[0].arguments[2]), 0x40000U);  // out
  EXPECT_EQ(read<uint64_t>(launches[1].arguments[1]), 0x80000U);  // dk
  EXPECT_EQ(read<int64_t>(launches[1].arguments[3]), 200 - 100 - 30);
  EXPECT_EQ(read<int64_t>(launches[1].arguments[4]), std::numeric_limits<int32_t>::max());
  EXPECT_EQ(read<uint64_t>(launches[2].arguments[1]), 0x70000U);  // dq
  EXPECT_EQ(read<double>(launches[2].arguments[2]), 0.125);
  EXPECT_EQ(launches[1].grid, (std::vector<unsigned>{4 * 2 * 2, 1, 1}));
  EXPECT_EQ(launches[2].grid, (std::vector<unsigned>{2 * 4 * 2, 1, 1}));
}

// Keys that no query sees still have gradients: 0, which must be written.
TEST_F(AttentionBackwardTest, NoQueriesIsStillALaunch) {
  BackwardCall call({2, 4, 2, 0, 200, 64});
  for (FakeTensor* tensor : {&call.q, &call.out, &call.lse, &call.dout, &call.dq}) {
    (*tensor)->data = nullptr;
  }
  call.args.workspace = nullptr;
  call.args.workspace_size = 0;
  attention(*library, call.args);
  ASSERT_EQ(cuda.launches().size(), 1U);
  EXPECT_EQ(read<uint64_t>(cuda.launches()[0].arguments[1]), 0x80000U);
}

TEST_F(AttentionBackwardTest, NoKeysIsStillALaunch) {
  BackwardCall call({2, 4, 2, 100, 0, 64});
  attention(*library, call.args);
  ASSERT_EQ(cuda.launches().size(), 2U);
  EXPECT_EQ(read<uint64_t>(cuda.launches()[1].arguments[1]), 0x70000U);
}

TEST_F(AttentionBackwardTest, NothingToComputeNeedsNoPackAndNoDriver) {
  const auto empty = open({"nowhere"});
  for (Shape shape : {Shape{0}, Shape{2, 4, 2, 0, 0}, Shape{2, 0, 0}}) {
    BackwardCall call(shape);
    call.args.workspace = nullptr;
    attention(*empty, call.args);
    aotbuild_launch_info info = AOTBUILD_INIT(aotbuild_launch_info);
    attention_query(*empty, call.args, &info);
    EXPECT_STREQ(info.image, "");
    EXPECT_EQ(info.workspace_size, 0U);
  }
}

TEST_F(AttentionBackwardTest, TheQueryTellsTheWorkspace) {
  aotbuild_launch_info info = AOTBUILD_INIT(aotbuild_launch_info);
  attention_query(*library, BackwardCall().args, &info);
  EXPECT_STREQ(info.image, "image12");
  EXPECT_EQ(info.workspace_size, kScratchOffset);
  EXPECT_EQ(info.workspace_align, 256U);
  EXPECT_TRUE(cuda.launches().empty());
}

}  // namespace
}  // namespace aotbuild
