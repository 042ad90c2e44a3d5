// Packs that the Python side wrote, good and bad; both readers must agree on each.
// `good*.aotpack` opens and all images inflate; `bad_<status>_<what>.aotpack` fails with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "error.h"
#include "pack.h"

namespace aotbuild {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> packs(const std::string& prefix) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(AOTBUILD_TEST_DATA)) {
    if (entry.path().extension() == ".aotpack" &&
        entry.path().filename().string().compare(0, prefix.size(), prefix) == 0) {
      found.push_back(entry.path());
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

void open_and_inflate(const fs::path& path) {
  const auto pack = Pack::open(path.string());
  for (const format::Image& image : pack->images()) {
    pack->inflate(image);
  }
}

void expect_status(const std::string& prefix, aotbuild_status status) {
  const std::vector<fs::path> found = packs(prefix);
  EXPECT_FALSE(found.empty()) << "no " << prefix << "*.aotpack in " << AOTBUILD_TEST_DATA;
  for (const fs::path& path : found) {
    try {
      open_and_inflate(path);
      ADD_FAILURE() << path << " opened";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), status) << error.message();
      EXPECT_NE(error.message().find(path.string()), std::string::npos) << error.message();
    }
  }
}

TEST(Vectors, CorruptPacks) { expect_status("bad_pack_corrupt_", AOTBUILD_ERROR_PACK_CORRUPT); }
TEST(Vectors, PacksOfOtherVersions) {
  expect_status("bad_pack_version_", AOTBUILD_ERROR_PACK_VERSION);
}
TEST(Vectors, PacksWithForeignCode) { expect_status("bad_pack_arch_", AOTBUILD_ERROR_PACK_ARCH); }

TEST(Vectors, EveryBadPackNamesAStatus) {
  const size_t named = packs("bad_pack_corrupt_").size() + packs("bad_pack_version_").size() +
                       packs("bad_pack_arch_").size();
  EXPECT_EQ(packs("bad").size(), named);
}

TEST(Vectors, GoodPacks) {
  const std::vector<fs::path> found = packs("good");
  EXPECT_FALSE(found.empty()) << "no good*.aotpack in " << AOTBUILD_TEST_DATA;
  for (const fs::path& path : found) {
    EXPECT_NO_THROW(open_and_inflate(path)) << path;
  }
}

}  // namespace
}  // namespace aotbuild
