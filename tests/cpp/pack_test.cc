// Opening, and what is checked before any record: file, header, directory, strings.
#include "pack.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <utility>

#include "pack_spoil.h"
#include "temporary_directory.h"

namespace aotbuild {
namespace {

using format::Header;
using namespace test;

// ---- Files ------------------------------------------------------------------------------------

TEST(PackOpen, RefusesWhatIsNoFile) {
  const TemporaryDirectory folder;
  const std::string absent = (folder.path() / "absent.aotpack").string();
  expect_error(AOTBUILD_ERROR_IO, {absent, "cannot open", "No such file"},
               [&] { Pack::open(absent); });
  expect_error(AOTBUILD_ERROR_IO, {folder.path().string(), "not a regular file"},
               [&] { Pack::open(folder.path().string()); });
  const std::string fifo = (folder.path() / "fifo.aotpack").string();
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  expect_error(AOTBUILD_ERROR_IO, {fifo, "not a regular file"}, [&] { Pack::open(fifo); });
}

TEST(PackOpen, RefusesEmptyFiles) {
  const TemporaryDirectory folder;
  const std::string path = folder.write("empty.aotpack", {});
  expect_error(AOTBUILD_ERROR_PACK_CORRUPT, {path, "truncated", "0 bytes", "288"},
               [&] { Pack::open(path); });
}

TEST(PackOpen, ReadsFilesWithAnyNameAndOutlivesThem) {
  const TemporaryDirectory folder;
  const std::string path = folder.write("sm_90/größe 型.aotpack", sample_pack().build());
  const auto pack = Pack::open(path);
  std::filesystem::remove(path);
  EXPECT_EQ(pack->path(), path);
  EXPECT_EQ(pack->inflate(pack->images()[0]).size(), 64 + std::strlen("by tensor map"));
}

TEST(PackOpen, MemoryMustBeAligned) {
  Bytes bytes = sample_pack().build();
  bytes.insert(bytes.begin(), 0);
  expect_error(AOTBUILD_ERROR_INVALID_ARGUMENT, {"name", "aligned to 8"},
               [&] { Pack::from_memory(bytes.data() + 1, bytes.size() - 1, "name"); });
}

// ---- Header -----------------------------------------------------------------------------------

TEST(PackHeader, EveryTruncationIsNoticed) {
  const Bytes good = sample_pack().build();
  for (size_t size = 0; size < good.size(); ++size) {
    const Bytes cut(good.begin(), good.begin() + static_cast<ptrdiff_t>(size));
    corrupt(cut, {"truncated"});
  }
  Bytes longer = good;
  longer.push_back(0);
  corrupt(longer, {"trailing bytes"});
}

TEST(PackHeader, RefusesOtherFiles) {
  corrupt(Bytes(1000, 'x'), {"not a pack", "7878787878787878", "AOTPACK"});
}

TEST(PackHeader, RefusesOtherVersions) {
  Bytes bytes = sample_pack().build();
  for (const uint32_t version : {0U, 2U, 0xFFFFFFFFU}) {
    header(bytes).format_version = version;
    // Also when nothing else can be believed.
    for (const size_t size : {bytes.size(), size_t{12}}) {
      expect_error(AOTBUILD_ERROR_PACK_VERSION,
                   {"dir/bad.aotpack", "version " + std::to_string(version), "reads version 1"},
                   [&] { Pack::from_memory(bytes.data(), size, "dir/bad.aotpack"); });
    }
  }
}

TEST(PackHeader, EveryChangedByteOfTheIndexIsNoticed) {
  Bytes bytes = sample_pack().build();
  const size_t index_size = header(bytes).index_size;
  for (size_t at = 0; at < index_size; ++at) {
    bytes[at] ^= 1;
    EXPECT_THROW(open_bytes(bytes), Error) << at;
    bytes[at] ^= 1;
  }
  EXPECT_NO_THROW(open_bytes(bytes));
}

TEST(PackHeader, DamagedIndexShowsBothHashes) {
  Bytes bytes = sample_pack().build();
  bytes[header(bytes).index_size - 1] ^= 1;
  corrupt(bytes, {"index damaged", "pack_id", "hashes to"});
}

TEST(PackHeader, RefusesWrongFields) {
  corrupt_header([](Header& h) { h.header_size = 256; }, {"header_size is 256", "288"});
  corrupt_header([](Header& h) { h.index_size = 287; }, {"index_size is 287"});
  corrupt_header([](Header& h) { h.index_size = h.file_size + 1; }, {"index_size"});
  corrupt_header([](Header& h) { h.index_size = UINT64_MAX; }, {"index_size"});
  corrupt_header([](Header& h) { h.vendor = 0; }, {"vendor is 0", "1..2"});
  corrupt_header([](Header& h) { h.vendor = 3; }, {"vendor is 3"});
  corrupt_header([](Header& h) { h.tier = 3; }, {"tier is 3"});
  corrupt_header([](Header& h) { h.warp_size = 48; }, {"warp_size is 48", "32 or 64"});
  corrupt_header([](Header& h) { h.reserved = 1; }, {"reserved", "zeros"});
  corrupt_header([](Header& h) { h.arch = 0; }, {"arch is empty"});
  corrupt_header([](Header& h) { h.family = 1 << 30; }, {"family is string 1073741824", "pool"});
  corrupt_header([](Header& h) { ++h.producer; }, {"producer", "the start of a string"});
}

TEST(PackDirectory, RefusesWrongTables) {
  corrupt_header([](Header& h) { h.tables[format::kImages].record_size = 120; },
                 {"tables[images].record_size is 120", "128"});
  corrupt_header([](Header& h) { h.tables[format::kRows].record_size = 0; },
                 {"tables[rows].record_size"});
  corrupt_header([](Header& h) { h.tables[format::kStrings].offset -= 8; }, {"tables[strings]"});
  corrupt_header([](Header& h) { h.tables[format::kImages].offset += 4; },
                 {"tables[images].offset"});
  corrupt_header([](Header& h) { h.tables[format::kImages].offset = UINT64_MAX - 7; },
                 {"tables[images].offset"});
  corrupt_header([](Header& h) { std::swap(h.tables[format::kRows], h.tables[format::kValues]); },
                 {"tables[values]"});
  corrupt_header([](Header& h) { h.tables[format::kImages].count = 0xFFFFFFFF; },
                 {"tables[images].count is 4294967295"});
  corrupt_header([](Header& h) { ++h.tables[format::kImages].count; },
                 {"tables[arguments].offset"});
  corrupt_header([](Header& h) { h.tables[format::kMeta].count += 8; }, {"tables[meta].count"});
}

TEST(PackDirectory, PaddingIsZeroAndTablesFillTheIndex) {
  Bytes bytes = sample_pack().build();
  const size_t last = header(bytes).index_size - 1;  // meta has 2 bytes, padded to 8
  bytes[last] = 1;
  seal(bytes);
  corrupt(bytes, {"reserved"});
  corrupt_header([](Header& h) { h.tables[format::kBlobs].count = 0; }, {"tables[meta].offset"});
}

TEST(PackStrings, RefusesWrongPools) {
  corrupt([](PackBuilder& b) { b.strings[0] = 'x'; }, {"strings", "a NUL"});
  corrupt([](PackBuilder& b) { b.strings[3] = '\n'; }, {"byte 10", "printable ASCII"});
  corrupt([](PackBuilder& b) { b.strings[3] = '\xC3'; }, {"byte 195", "printable ASCII"});
  Bytes bytes = sample_pack().build();
  const auto& pool = header(bytes).tables[format::kStrings];
  bytes[pool.offset + pool.count - 1] = 'x';
  seal(bytes);
  corrupt(bytes, {"byte 120", "a NUL at the end"});
}

// ---- A good pack ------------------------------------------------------------------------------

TEST(Pack, ReadsWhatWasWritten) {
  const PackBuilder builder = sample_pack();
  const Bytes bytes = builder.build();
  const auto pack = open_bytes(bytes);
  EXPECT_EQ(pack->arch(), "sm_90");
  EXPECT_EQ(pack->family(), "test");
  EXPECT_EQ(pack->vendor(), format::Vendor::kCuda);
  ASSERT_EQ(pack->operators().size(), 1U);
  const format::Operator& op = pack->operators()[0];
  EXPECT_EQ(pack->tensors(op).size(), 3U);
  EXPECT_EQ(pack->string(pack->tensors(op)[2].name), "mask");
  EXPECT_EQ(pack->columns(op).size(), 4U);
  EXPECT_EQ(pack->rows(op).size(), 4U);
  EXPECT_EQ(pack->values(op)[9], 128);
  ASSERT_EQ(pack->images().size(), 3U);
  EXPECT_EQ(pack->string(pack->images()[1].name), "b_aligned");
  EXPECT_EQ(pack->arguments(pack->images()[1]).size(), 10U);
  EXPECT_EQ(pack->factors(pack->images()[1]).size(), 2U);
  EXPECT_EQ(pack->descriptors().size(), 1U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(pack->inflate(pack->images()[i]), builder.codes[i]);
  }
}

TEST(Pack, FindsOperatorsByName) {
  PackBuilder builder = sample_pack();
  for (const char* name : {"g", "h"}) {
    builder.operators.push_back(builder.operators[0]);
    builder.operators.back().name = builder.text(name);
  }
  const Bytes bytes = builder.build();
  const auto pack = open_bytes(bytes);
  for (const char* name : {"forward", "g", "h"}) {
    ASSERT_NE(pack->find_operator(name), nullptr);
    EXPECT_EQ(pack->string(pack->find_operator(name)->name), name);
  }
  for (const char* name : {"", "a", "forwar", "forward2", "gg", "z"}) {
    EXPECT_EQ(pack->find_operator(name), nullptr) << name;
  }
}

TEST(Pack, CanBeEmpty) {
  const Bytes bytes = PackBuilder().build();
  const auto pack = open_bytes(bytes);
  EXPECT_TRUE(pack->operators().empty());
  EXPECT_EQ(pack->find_operator("forward"), nullptr);
}

}  // namespace
}  // namespace aotbuild
