// Many thousand spoiled packs, the same in every run. Sealed ones have their hash made right again,
// so that the checks behind it are met. Sanitizers are what makes this test strict.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "pack_builder.h"
#include "pack_format.h"
#include "pack_walk.h"

namespace aotbuild {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr int kRounds = 10000;

// Values at the edges of what the reader compares.
constexpr uint64_t kEdges[] = {0,          1,          2,          3,          7,
                               8,          32,         33,         0x7F,       0x80,
                               0xFF,       0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFF8,
                               1ULL << 30, 1ULL << 31, 1ULL << 62, UINT64_MAX, UINT64_MAX - 7};

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  uint64_t below(uint64_t limit) { return random_() % limit; }

  void flip_bit(Bytes& bytes, size_t end) {
    bytes[below(end)] ^= static_cast<uint8_t>(1U << below(8));
  }
  // A field of 1, 2, 4 or 8 bytes at its alignment gets an edge value or that of a neighbour.
  void set_field(Bytes& bytes, size_t end) {
    const size_t width = size_t{1} << below(4);
    const size_t at = below(end / width) * width;
    uint64_t value = kEdges[below(std::size(kEdges))];
    if (below(3) == 0) {
      std::memcpy(&value, bytes.data() + below(end / width) * width, width);
    } else if (below(3) == 0) {
      std::memcpy(&value, bytes.data() + at, width);
      value += below(2) == 0 ? 1 : UINT64_MAX;  // one more or one less
    }
    std::memcpy(bytes.data() + at, &value, width);
  }
  void truncate(Bytes& bytes) { bytes.resize(below(bytes.size())); }

 private:
  std::mt19937_64 random_;
};

size_t index_size(const Bytes& bytes) {
  uint64_t size;
  std::memcpy(&size, bytes.data() + offsetof(format::Header, index_size), sizeof(size));
  return size;
}

TEST(PackFuzz, SealedFieldChangesInTheIndex) {
  const Bytes good = test::sample_pack().build();
  const size_t end = index_size(good);
  Mutator mutator(1);
  int opened = 0;
  for (int round = 0; round < kRounds; ++round) {
    Bytes bytes = good;
    for (uint64_t changes = 1 + mutator.below(3); changes > 0; --changes) {
      mutator.set_field(bytes, end);
    }
    test::seal(bytes);
    opened += test::open_and_walk(bytes.data(), bytes.size()) ? 1 : 0;
  }
  // Both outcomes are met: some changes are of no consequence, most are refused.
  EXPECT_GT(opened, kRounds / 100);
  EXPECT_LT(opened, kRounds);
}

TEST(PackFuzz, SealedBitFlipsInTheIndex) {
  const Bytes good = test::sample_pack().build();
  const size_t end = index_size(good);
  Mutator mutator(2);
  int opened = 0;
  for (int round = 0; round < kRounds; ++round) {
    Bytes bytes = good;
    mutator.flip_bit(bytes, end);
    test::seal(bytes);
    opened += test::open_and_walk(bytes.data(), bytes.size()) ? 1 : 0;
  }
  EXPECT_GT(opened, kRounds / 100);
  EXPECT_LT(opened, kRounds);
}

TEST(PackFuzz, ChangesInBlobs) {
  const Bytes good = test::sample_pack().build();
  const size_t start = index_size(good);
  Mutator mutator(3);
  for (int round = 0; round < kRounds; ++round) {
    Bytes bytes = good;
    bytes[start + mutator.below(bytes.size() - start)] ^=
        static_cast<uint8_t>(1 + mutator.below(255));
    ASSERT_TRUE(test::open_and_walk(bytes.data(), bytes.size()));  // blobs are read when needed
  }
}

TEST(PackFuzz, TruncationsAndUnsealedChanges) {
  const Bytes good = test::sample_pack().build();
  Mutator mutator(4);
  for (int round = 0; round < kRounds; ++round) {
    Bytes bytes = good;
    if (mutator.below(2) == 0) {
      mutator.truncate(bytes);
      ASSERT_FALSE(test::open_and_walk(bytes.data(), bytes.size()));
    } else {
      mutator.set_field(bytes, index_size(good));
      test::open_and_walk(bytes.data(), bytes.size());
    }
  }
}

TEST(PackFuzz, TheUnspoiledPackOpens) {
  const Bytes good = test::sample_pack().build();
  EXPECT_TRUE(test::open_and_walk(good.data(), good.size()));
}

}  // namespace
}  // namespace aotbuild
