#include "dispatch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "expect_error.h"
#include "pack_builder.h"

namespace aotbuild {
namespace {

using format::SourceKind;
using format::Type;
using test::expect_error;
using test::FakeTensor;
using test::kFloat16;
using test::kFloat32;
using test::PackBuilder;

// A pack that stays with its bytes.
struct Opened {
  explicit Opened(const PackBuilder& builder)
      : bytes(builder.build()),
        pack(Pack::from_memory(bytes.data(), bytes.size(), "sample.aotpack")) {}

  const format::Operator& op() const { return pack->operators()[0]; }

  std::vector<uint8_t> bytes;
  std::unique_ptr<const Pack> pack;
};

class Dispatch : public testing::Test {
 protected:
  Dispatch() : sample_(test::sample_pack()) {}

  Call call(const FakeTensor& x, int64_t fast) const {
    Call call;
    call.add("x", x.get());
    call.add("out", x.get());
    call.add("mask", static_cast<const aotbuild_tensor*>(nullptr));
    call.add("fast", fast);
    call.add("scale", 0.5);
    return call;
  }
  // Name of the image, or the reason why there is none.
  std::string chosen(const FakeTensor& x, int64_t fast) const {
    std::string why;
    const format::Image* image = dispatch(*sample_.pack, sample_.op(), call(x, fast), &why);
    return image == nullptr ? why : std::string(sample_.pack->string(image->name));
  }
  bool holds(const PackBuilder& builder, const FakeTensor& x, std::string* why = nullptr) const {
    const Opened opened(builder);
    return promises_hold(*opened.pack, opened.pack->images()[0], call(x, 0), why);
  }

  Opened sample_;
};

void expect_holds(const std::string& text, std::initializer_list<std::string> pieces) {
  for (const std::string& piece : pieces) {
    EXPECT_NE(text.find(piece), std::string::npos) << "no \"" << piece << "\" in: " << text;
  }
}

TEST_F(Dispatch, TellsWhichColumnHasNoValue) {
  expect_holds(chosen(FakeTensor({10, 64}, 0 | 32 << 8), 0),
               {"'forward'", "dtype=int32 width=64 fast=0", "no row has dtype equal to int32",
                "float16, float32"});
  expect_holds(chosen(FakeTensor({10, 300}, kFloat16), 0),
               {"no row has width of at least 300", "there are 64, 128"});
  expect_holds(chosen(FakeTensor({10, 64}, kFloat16), -1),
               {"no row has fast of at most -1", "there are 0, 1"});
}

TEST_F(Dispatch, TellsThatNoRowCopesWithSlack) {
  PackBuilder builder = test::sample_pack();
  for (size_t row = 0; row < builder.rows.size(); ++row) {
    builder.values[row * 4 + 3] = 0;
  }
  const Opened opened(builder);
  const FakeTensor x({10, 60}, kFloat16);
  std::string why;
  EXPECT_EQ(dispatch(*opened.pack, opened.op(), call(x, 0), &why), nullptr);
  expect_holds(why, {"no row has width exactly", "padded=1"});
}

TEST_F(Dispatch, TellsWhichPromisesDoNotHold) {
  PackBuilder builder = test::sample_pack();
  builder.arguments.back().divisibility = 1;
  // The general image promises something, too.
  builder.arguments[builder.images[2].first_argument].divisibility = 4;
  const Opened opened(builder);
  const FakeTensor x({10, 64}, kFloat16, 0x10002);
  std::string why = "before; ";
  EXPECT_EQ(dispatch(*opened.pack, opened.op(), call(x, 1), &why), nullptr);
  expect_holds(why, {"before; ", "image 'a_descriptor': tensor 'x' of a descriptor does not start",
                     "image 'b_aligned': address of tensor 'x' is 65538, not a multiple of 16",
                     "image 'c_general'", "multiple of 4"});
  EXPECT_EQ(dispatch(*opened.pack, opened.op(), call(x, 1), nullptr), nullptr);
}

TEST_F(Dispatch, KnownFailureIsRefusedWithItsReason) {
  expect_error(AOTBUILD_ERROR_UNSUPPORTED,
               {"sample.aotpack", "'forward'", "dtype=float32 width=100", "known failure", "sm_90",
                "wrong numbers"},
               [&] { chosen(FakeTensor({10, 100}, kFloat32), 0); });
}

TEST_F(Dispatch, MissingValueIsAContractError) {
  const FakeTensor x({10, 64}, kFloat16);
  Call call;
  call.add("x", x.get());
  expect_error(AOTBUILD_ERROR_CONTRACT, {"value 'fast'"},
               [&] { dispatch(*sample_.pack, sample_.op(), call, nullptr); });
}

TEST_F(Dispatch, OperatorWithoutRowsSaysSo) {
  PackBuilder builder = test::sample_pack();
  builder.rows.clear();
  builder.values.clear();
  builder.operators[0].row_count = 0;
  const Opened opened(builder);
  const FakeTensor x({10, 64}, kFloat16);
  std::string why;
  EXPECT_EQ(dispatch(*opened.pack, opened.op(), call(x, 0), &why), nullptr);
  expect_holds(why, {"no row for this operator"});
}

TEST_F(Dispatch, FirstRowThatServesWins) {
  EXPECT_EQ(chosen(FakeTensor({10, 64}, kFloat16), 1), "a_descriptor");
  EXPECT_EQ(chosen(FakeTensor({10, 64}, kFloat16), 0), "b_aligned");  // fast is not permitted
  EXPECT_EQ(chosen(FakeTensor({10, 56}, kFloat16), 1), "b_aligned");  // slack needs padded
  EXPECT_EQ(chosen(FakeTensor({10, 65}, kFloat16), 1), "c_general");  // above the tile
  EXPECT_EQ(chosen(FakeTensor({10, 128}, kFloat16), 1), "c_general");
}

TEST_F(Dispatch, BrokenPromisesGoOnToTheNextRow) {
  EXPECT_EQ(chosen(FakeTensor({10, 64}, kFloat16, 0x10008), 1), "c_general");
  EXPECT_EQ(chosen(FakeTensor({10, 60}, kFloat16), 0), "c_general");  // 60 is no multiple of 8
}

// Binary search against the definition, over tables with runs, gaps and one value.
TEST_F(Dispatch, SearchFindsWhatAScanFinds) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    PackBuilder builder = test::sample_pack();
    builder.rows.clear();
    builder.values.clear();
    builder.columns[1].mode = format::Mode::kEqual;  // dtype and width lead
    std::vector<std::array<int64_t, 2>> keys;
    keys.reserve(seed % 13);
    uint32_t state = seed * 2654435761U + 1;
    const auto next = [&state](uint32_t below) {
      state = state * 1664525U + 1013904223U;
      return static_cast<int64_t>((state >> 16) % below);
    };
    for (uint32_t row = 0; row < seed % 13; ++row) {
      keys.push_back({next(2) == 0 ? kFloat16 : kFloat32, next(5)});
    }
    std::sort(keys.begin(), keys.end());
    for (const auto& key : keys) {
      builder.values.insert(builder.values.end(), {key[0], key[1], next(2), 1});
      builder.rows.push_back({2, 0});
    }
    builder.operators[0].row_count = static_cast<uint32_t>(keys.size());
    const Opened opened(builder);
    for (int64_t width = 0; width < 6; ++width) {
      const FakeTensor x({10, width}, kFloat16);
      bool expected = false;
      for (size_t row = 0; row < keys.size(); ++row) {
        expected = expected || (keys[row][0] == kFloat16 && keys[row][1] == width &&
                                builder.values[row * 4 + 2] == 0);
      }
      EXPECT_EQ(dispatch(*opened.pack, opened.op(), call(x, 0), nullptr) != nullptr, expected)
          << "seed " << seed << " width " << width;
    }
  }
}

// A pack whose first image has one argument.
PackBuilder one_argument(Type type, SourceKind kind, std::string_view source, uint8_t dim,
                         uint32_t divisibility = 1) {
  PackBuilder builder = test::sample_pack();
  builder.arguments[0] = {builder.text("argument"), type,         kind, dim, 0,
                          builder.text(source),     divisibility, 0,    0};
  builder.images[0].argument_count = 1;
  return builder;
}

TEST_F(Dispatch, IntegersMustFitTheirType) {
  struct {
    Type type;
    int64_t low, high;
  } const ranges[] = {
      {Type::kI1, 0, 1},
      {Type::kI8, INT8_MIN, INT8_MAX},
      {Type::kI16, INT16_MIN, INT16_MAX},
      {Type::kI32, INT32_MIN, INT32_MAX},
      {Type::kI64, INT64_MIN, INT64_MAX},
      {Type::kU8, 0, UINT8_MAX},
      {Type::kU16, 0, UINT16_MAX},
      {Type::kU32, 0, UINT32_MAX},
      {Type::kU64, 0, INT64_MAX},
  };
  const FakeTensor x({10, 64}, kFloat16);
  for (const auto& range : ranges) {
    const Opened opened(one_argument(range.type, SourceKind::kValue, "fast", 0));
    const auto fits = [&](int64_t value) {
      return promises_hold(*opened.pack, opened.pack->images()[0], call(x, value), nullptr);
    };
    EXPECT_TRUE(fits(range.low));
    EXPECT_TRUE(fits(range.high));
    if (range.low != INT64_MIN) {
      EXPECT_FALSE(fits(range.low - 1)) << static_cast<int>(range.type);
    }
    if (range.high != INT64_MAX) {
      EXPECT_FALSE(fits(range.high + 1)) << static_cast<int>(range.type);
    }
  }
}

TEST_F(Dispatch, SizeBeyondItsTypeSaysSo) {
  std::string why;
  const FakeTensor x({int64_t{1} << 31, 1}, kFloat16);
  EXPECT_FALSE(holds(one_argument(Type::kI32, SourceKind::kSize, "x", 0), x, &why));
  expect_holds(why, {"'argument' is 2147483648", "-2147483648..2147483647"});
}

TEST_F(Dispatch, RealsFillRealArgumentsOnly) {
  const FakeTensor x({10, 64}, kFloat16);
  for (const Type type : {Type::kFp16, Type::kBf16, Type::kFp32, Type::kFp64}) {
    EXPECT_TRUE(holds(one_argument(type, SourceKind::kValue, "scale", 0), x));
    EXPECT_TRUE(holds(one_argument(type, SourceKind::kValue, "fast", 0), x));
    expect_error(AOTBUILD_ERROR_CONTRACT, {"value 'absent'"},
                 [&] { holds(one_argument(type, SourceKind::kValue, "absent", 0), x); });
  }
  expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, {"'scale'", "integer"},
               [&] { holds(one_argument(Type::kI32, SourceKind::kValue, "scale", 0), x); });
}

TEST_F(Dispatch, DivisibilityOfIntegersAndPointers) {
  const auto strides = one_argument(Type::kI64, SourceKind::kStride, "x", 0, 16);
  EXPECT_TRUE(holds(strides, FakeTensor({10, 64}, kFloat16)));
  EXPECT_FALSE(holds(strides, FakeTensor({10, 72}, kFloat16)));
  const auto pointers = one_argument(Type::kPointer, SourceKind::kPointer, "x", 0, 16);
  FakeTensor x({10, 64}, kFloat16, 0x10008);
  EXPECT_FALSE(holds(pointers, x));
  x->byte_offset = 8;  // counts: the promise is about the first element
  EXPECT_TRUE(holds(pointers, x));
  // An absent tensor is a null pointer, which divides.
  EXPECT_TRUE(holds(one_argument(Type::kPointer, SourceKind::kPointer, "mask", 0, 16), x));
}

TEST_F(Dispatch, Range32CountsFromTheFirstElement) {
  PackBuilder builder = one_argument(Type::kPointer, SourceKind::kPointer, "x", 0);
  builder.arguments[0].flags = format::kRange32;
  const int64_t rows = (int64_t{1} << 31) / 128;
  EXPECT_TRUE(holds(builder, FakeTensor({rows - 1, 64}, kFloat16)));
  std::string why;
  EXPECT_FALSE(holds(builder, FakeTensor({rows, 64}, kFloat16), &why));
  expect_holds(why, {"'x' spans 2147483648 bytes"});
  FakeTensor spread({2, 64}, kFloat16);
  spread.set_strides({int64_t{1} << 40, 1});
  EXPECT_FALSE(holds(builder, spread));
  builder.arguments[0].source_name = builder.text("mask");  // absent
  EXPECT_TRUE(holds(builder, spread));
}

TEST_F(Dispatch, DescriptorPromises) {
  PackBuilder builder = test::sample_pack();
  builder.images[0].argument_count = 1;
  FakeTensor x({10, 64}, kFloat16);
  EXPECT_TRUE(holds(builder, x));
  x->byte_offset = 8;
  EXPECT_FALSE(holds(builder, x));
  x->byte_offset = 16;
  EXPECT_TRUE(holds(builder, x));
  x.set_strides({72, 1});  // 144 bytes
  EXPECT_TRUE(holds(builder, x));
  x.set_strides({68, 1});  // 136 bytes
  EXPECT_FALSE(holds(builder, x));
  x.set_strides({64, 2});
  EXPECT_FALSE(holds(builder, x));
  x.set_strides({64, 1});
  x->shape[0] = 0;
  EXPECT_FALSE(holds(builder, x));
}

TEST_F(Dispatch, DescriptorOfAnAbsentTensor) {
  PackBuilder builder = test::sample_pack();
  builder.images[0].argument_count = 1;
  builder.descriptors[0].tensor = builder.text("mask");
  builder.descriptors[0].rank = 1;
  builder.descriptors[0].box[1] = 0;
  std::string why;
  EXPECT_FALSE(holds(builder, FakeTensor({10, 64}, kFloat16), &why));
  expect_holds(why, {"'mask' of a descriptor is absent"});
}

class GridOf : public Dispatch {
 protected:
  // The first image with these factors.
  static PackBuilder with_factors(std::initializer_list<format::Factor> factors) {
    PackBuilder builder = test::sample_pack();
    builder.factors = factors;
    for (format::Factor& factor : builder.factors) {
      factor.source_name = builder.text(factor.source_kind == SourceKind::kSize ? "x" : "fast");
    }
    for (format::Image& image : builder.images) {
      image.first_factor = 0;
      image.factor_count = static_cast<uint32_t>(factors.size());
    }
    return builder;
  }
  static format::Factor size(uint8_t axis, uint8_t dim, uint32_t divisor) {
    return {axis, SourceKind::kSize, dim, 0, 0, divisor, 0};
  }
  static format::Factor value(uint8_t axis, uint32_t divisor) {
    return {axis, SourceKind::kValue, 0, 0, 0, divisor, 0};
  }
  std::array<uint32_t, 3> grid(const PackBuilder& builder, const FakeTensor& x, int64_t fast = 0,
                               uint32_t multiprocessors = 132) const {
    const Opened opened(builder);
    const Grid grid =
        grid_of(*opened.pack, opened.pack->images()[0], call(x, fast), multiprocessors);
    EXPECT_EQ(grid.empty(), grid.x == 0 || grid.y == 0 || grid.z == 0);
    return {grid.x, grid.y, grid.z};
  }
};

using Size = std::array<uint32_t, 3>;

TEST_F(GridOf, RefusesNegativeValues) {
  expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, {"'fast' is -1"},
               [&] { grid(with_factors({value(0, 1)}), FakeTensor({1, 1}, kFloat16), -1); });
}

TEST_F(GridOf, RefusesWhatADeviceCannotCount) {
  const FakeTensor x({1, 1}, kFloat16);
  const auto refused = [&](std::initializer_list<std::string> pieces, const PackBuilder& builder,
                           int64_t fast) {
    expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, pieces, [&] { grid(builder, x, fast); });
  };
  refused({"grid.x", "'a_descriptor'", "2147483648"}, with_factors({value(0, 1)}), 1LL << 31);
  refused({"grid.y", "65536"}, with_factors({value(1, 1)}), 65536);
  refused({"grid.z", "65536"}, with_factors({value(2, 1)}), 65536);
  // 2^126 in 64 bits would be 0.
  refused({"grid.x", "over 2^64"}, with_factors({value(0, 1), value(0, 1)}), 1LL << 62);
  PackBuilder clusters = with_factors({value(0, 1)});
  clusters.images[0].num_ctas = 2;
  refused({"grid.x"}, clusters, 1LL << 30);
}

TEST_F(GridOf, LargestGridsFit) {
  const FakeTensor x({1, 1}, kFloat16);
  EXPECT_EQ(grid(with_factors({value(0, 1)}), x, INT32_MAX), (Size{INT32_MAX, 1, 1}));
  EXPECT_EQ(grid(with_factors({value(1, 1)}), x, 65535), (Size{1, 65535, 1}));
}

TEST_F(GridOf, ProductsOfCeilings) {
  const FakeTensor x({100, 65}, kFloat16);
  EXPECT_EQ(grid(with_factors({}), x), (Size{1, 1, 1}));
  EXPECT_EQ(grid(with_factors({size(0, 0, 64), size(0, 1, 32), size(2, 1, 65)}), x),
            (Size{6, 1, 1}));
  EXPECT_EQ(grid(with_factors({size(1, 0, 1), value(2, 2)}), x, 7), (Size{1, 100, 4}));
}

TEST_F(GridOf, EmptyWhateverTheOtherAxesAre) {
  const FakeTensor x({0, 1LL << 40}, kFloat16);
  EXPECT_EQ(grid(with_factors({size(0, 1, 1), size(1, 0, 64)}), x), (Size{0, 0, 0}));
}

TEST_F(GridOf, CapOfPersistentKernels) {
  PackBuilder builder = with_factors({value(0, 1), size(1, 0, 1)});
  builder.images[0].grid_cap = 2;
  const FakeTensor x({3, 1}, kFloat16);
  EXPECT_EQ(grid(builder, x, 100), (Size{100, 3, 1}));
  EXPECT_EQ(grid(builder, x, 1LL << 40), (Size{264, 3, 1}));
  expect_error(AOTBUILD_ERROR_INTERNAL, {"multiprocessors"}, [&] { grid(builder, x, 100, 0); });
}

}  // namespace
}  // namespace aotbuild
