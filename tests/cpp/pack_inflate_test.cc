// Blobs and the code objects in them.
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "pack_spoil.h"

namespace aotbuild {
namespace {

using namespace test;

format::Blob* blobs(Bytes& bytes) {
  return reinterpret_cast<format::Blob*>(bytes.data() +
                                         header(bytes).tables[format::kBlobs].offset);
}

TEST(PackBlobs, RefusesWrongRecords) {
  const auto spoiled = [](const std::function<void(format::Blob*)>& spoil,
                          std::initializer_list<std::string> pieces) {
    Bytes bytes = sample_pack().build();
    spoil(blobs(bytes));
    seal(bytes);
    corrupt(bytes, pieces);
  };
  spoiled([](format::Blob* b) { b[0].offset += 1; }, {"blobs[0]", "offset is"});
  spoiled([](format::Blob* b) { b[1].offset = 0; }, {"blobs[1]", "offset is 0"});
  spoiled([](format::Blob* b) { b[0].size = 0; }, {"size is 0"});
  spoiled([](format::Blob* b) { b[2].size = UINT64_MAX; }, {"blobs[2]", "size is"});
  spoiled([](format::Blob* b) { b[2].size -= 1; }, {"blobs end at"});
  spoiled([](format::Blob* b) { b[0].raw_size = 0; }, {"raw_size is 0"});
  spoiled([](format::Blob* b) { b[0].raw_size = (1U << 30) + 1; }, {"raw_size is 1073741825"});
  spoiled([](format::Blob* b) { b[0].reserved = 1; }, {"blobs[0]", "reserved"});
  spoiled([](format::Blob* b) { std::swap(b[0].sha256, b[1].sha256); }, {"blobs[1]", "sha256"});
}

// The blob that image 0 uses, spoiled, must not come out.
void expect_inflate_error(aotbuild_status status, std::initializer_list<std::string> pieces,
                          const std::function<void(Bytes&, format::Blob&)>& spoil) {
  PackBuilder builder = sample_pack();
  Bytes bytes = builder.build();
  uint32_t blob;
  std::memcpy(
      &blob,
      bytes.data() + header(bytes).tables[format::kImages].offset + offsetof(format::Image, blob),
      sizeof(blob));
  spoil(bytes, blobs(bytes)[blob]);
  seal(bytes);
  const auto pack = open_bytes(bytes);
  expect_error(status, {"dir/bad.aotpack", "image 'a_descriptor'"},
               [&] { pack->inflate(pack->images()[0]); });
  expect_error(status, pieces, [&] { pack->inflate(pack->images()[0]); });
}

TEST(PackInflate, RefusesFramesThatAreNone) {
  expect_inflate_error(AOTBUILD_ERROR_PACK_CORRUPT, {"zstd: Unknown frame descriptor"},
                       [](Bytes& bytes, format::Blob& blob) { bytes[blob.offset] ^= 1; });
}

TEST(PackInflate, RefusesOtherSizes) {
  expect_inflate_error(AOTBUILD_ERROR_PACK_CORRUPT, {"content size", "expected 78"},
                       [](Bytes&, format::Blob& blob) { ++blob.raw_size; });
}

TEST(PackInflate, RefusesOtherContent) {
  // The last byte of the digest does not change the order of the blobs.
  expect_inflate_error(AOTBUILD_ERROR_PACK_CORRUPT, {"SHA-256 is", "expected"},
                       [](Bytes&, format::Blob& blob) { blob.sha256[31] ^= 1; });
}

TEST(PackInflate, EveryChangedByteOfABlobIsNoticed) {
  Bytes bytes = sample_pack().build();
  for (size_t at = header(bytes).index_size; at < bytes.size(); ++at) {
    bytes[at] ^= 1;
    const auto pack = open_bytes(bytes);
    const auto all = [&] {
      for (const format::Image& image : pack->images()) {
        pack->inflate(image);
      }
    };
    // One bit of the frame's descriptor has no meaning to a decoder; content is what counts.
    try {
      all();
      for (const format::Image& image : pack->images()) {
        ASSERT_EQ(pack->inflate(image)[0], 0x7F) << at;
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), AOTBUILD_ERROR_PACK_CORRUPT) << error.message();
    }
    bytes[at] ^= 1;
  }
}

// Two frames in one blob: the second would never be read.
TEST(PackInflate, RefusesBytesBehindTheFrame) {
  PackBuilder builder = sample_pack();
  Bytes bytes = builder.build();
  const format::Blob last = blobs(bytes)[2];
  bytes.insert(bytes.end(), bytes.begin() + static_cast<ptrdiff_t>(last.offset),
               bytes.begin() + static_cast<ptrdiff_t>(last.offset + last.size));
  blobs(bytes)[2].size *= 2;
  header(bytes).file_size = bytes.size();
  seal(bytes);
  const auto pack = open_bytes(bytes);
  expect_error(AOTBUILD_ERROR_PACK_CORRUPT, {"length of the zstd frame"}, [&] {
    for (const format::Image& image : pack->images()) {
      pack->inflate(image);
    }
  });
}

TEST(PackInflate, RefusesForeignCodeObjects) {
  PackBuilder builder = sample_pack();
  builder.codes[0] = fake_code(format::Vendor::kCuda, 80, "of another arch");
  builder.codes[1] = {'n', 'o', 'n', 'e'};
  const Bytes bytes = builder.build();
  const auto pack = open_bytes(bytes);
  expect_error(AOTBUILD_ERROR_PACK_ARCH, {"image 'a_descriptor'", "SM 80", "sm_90"},
               [&] { pack->inflate(pack->images()[0]); });
  expect_error(AOTBUILD_ERROR_PACK_CORRUPT, {"image 'b_aligned'", "ELF"},
               [&] { pack->inflate(pack->images()[1]); });
  EXPECT_NO_THROW(pack->inflate(pack->images()[2]));
}

}  // namespace
}  // namespace aotbuild
