#include "search.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "temporary_directory.h"

namespace aotbuild {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;

// Each test starts without the variables that the search path reads.
class Search : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"AOTBUILD_IMAGE_PATH", "XDG_DATA_HOME", "HOME"}) {
      const char* value = std::getenv(name);
      saved_.emplace_back(name, value == nullptr ? "" : value);
      unsetenv(name);
    }
  }
  void TearDown() override {
    for (const auto& [name, value] : saved_) {
      value.empty() ? unsetenv(name) : setenv(name, value.c_str(), 1);
    }
  }
  static void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }

  // "origin=directory" lines of a copy of the probe at `library`, relative to `root`.
  static std::string probe(const TemporaryDirectory& root, const fs::path& library) {
    const fs::path file = root.path() / library;
    fs::create_directories(file.parent_path());
    fs::copy_file(AOTBUILD_SEARCH_PROBE, file);
    return call_probe(file);
  }
  static std::string call_probe(const fs::path& file) {
    void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      ADD_FAILURE() << dlerror();
      return "";
    }
    const auto search = reinterpret_cast<const char* (*)()>(dlsym(handle, "probe_search_path"));
    std::string text = search();
    dlclose(handle);
    return text;
  }

 private:
  std::vector<std::pair<const char*, std::string>> saved_;
};

std::vector<std::string> directories(const std::vector<SearchEntry>& entries,
                                     const std::string& origin) {
  std::vector<std::string> found;
  for (const SearchEntry& entry : entries) {
    if (entry.origin == origin) {
      found.push_back(entry.directory);
    }
  }
  return found;
}

using Paths = std::vector<std::string>;

TEST_F(Search, GivenPathsComeFirstAndCanBeAlone) {
  set("AOTBUILD_IMAGE_PATH", "/env");
  set("HOME", "/home/u");
  const char* paths[] = {"/given/b", "/given/a"};
  auto options = AOTBUILD_INIT(aotbuild_open_options);
  options.paths = paths;
  options.path_count = 2;
  const auto all = search_path(&options);
  ASSERT_GE(all.size(), 5U);
  EXPECT_EQ(all[0].directory, "/given/b");
  EXPECT_EQ(all[1].directory, "/given/a");
  EXPECT_EQ(all[2].directory, "/env");
  EXPECT_EQ(all.back().directory, "/home/u/.local/share/aotbuild/images");
  options.paths_only = 1;
  EXPECT_EQ(search_path(&options).size(), 2U);
  options.path_count = 0;
  EXPECT_TRUE(search_path(&options).empty());
}

TEST_F(Search, EmptyEntriesOfTheEnvironmentAreIgnored) {
  set("AOTBUILD_IMAGE_PATH", "::/a::/b c:");
  EXPECT_EQ(directories(search_path(nullptr), "AOTBUILD_IMAGE_PATH"), (Paths{"/a", "/b c"}));
  for (const char* nothing : {"", ":", ":::"}) {
    set("AOTBUILD_IMAGE_PATH", nothing);
    EXPECT_EQ(directories(search_path(nullptr), "AOTBUILD_IMAGE_PATH"), Paths());
  }
}

TEST_F(Search, WheelsComeBeforeTheUsersDirectory) {
  set("HOME", "/home/u");
  const char* wheels[] = {"/site/b", "/site/a", "/site/b/"};
  auto options = AOTBUILD_INIT(aotbuild_open_options);
  options.wheel_paths = wheels;
  options.wheel_count = 3;
  const auto path = search_path(&options);
  ASSERT_GE(path.size(), 4U);
  EXPECT_EQ(directories(path, "image wheel"), (Paths{"/site/b", "/site/a"}));
  EXPECT_EQ(path[path.size() - 4].origin, "beside the library");
  EXPECT_EQ(path[path.size() - 3].directory, "/site/b");
  EXPECT_EQ(path.back().origin, "home directory");
  options.paths_only = 1;
  EXPECT_TRUE(search_path(&options).empty());
}

TEST_F(Search, UserDataDirectory) {
  EXPECT_EQ(directories(search_path(nullptr), "home directory"), Paths());
  set("HOME", "relative");
  EXPECT_EQ(directories(search_path(nullptr), "home directory"), Paths());
  set("HOME", "/home/jürgen");
  EXPECT_EQ(directories(search_path(nullptr), "home directory"),
            Paths{"/home/jürgen/.local/share/aotbuild/images"});
  set("XDG_DATA_HOME", "not/absolute");
  EXPECT_EQ(directories(search_path(nullptr), "XDG_DATA_HOME"), Paths());
  EXPECT_EQ(directories(search_path(nullptr), "home directory").size(), 1U);
  set("XDG_DATA_HOME", "/data");
  EXPECT_EQ(directories(search_path(nullptr), "XDG_DATA_HOME"), Paths{"/data/aotbuild/images"});
  EXPECT_EQ(directories(search_path(nullptr), "home directory"), Paths());
}

TEST_F(Search, OneDirectoryUnderSeveralSpellingsIsListedOnce) {
  const TemporaryDirectory root;
  const std::string real = (root.path() / "données").string();
  fs::create_directory(real);
  fs::create_directory_symlink(real, root.path() / "link");
  set("AOTBUILD_IMAGE_PATH", real + ":" + real + "/:" + root.path().string() + "/./données:" +
                                 root.path().string() + "/link:/absent/x:/absent/y/../x");
  EXPECT_EQ(directories(search_path(nullptr), "AOTBUILD_IMAGE_PATH"), (Paths{real, "/absent/x"}));
}

TEST_F(Search, LibraryDirectoryHoldsTheTestItself) {
  EXPECT_EQ(library_directory(), fs::canonical("/proc/self/exe").parent_path().string());
}

TEST_F(Search, InstalledLibraryFindsItsPrefix) {
  const TemporaryDirectory root;
  for (const fs::path folder : {"lib", "lib64", "lib/x86_64-linux-gnu"}) {
    const fs::path prefix = "of" / folder;
    std::string expected = "beside the library=";
    expected += root.path() / prefix / folder / "aotbuild.images";
    expected += "\ninstallation prefix=";
    expected += root.path() / prefix / "share/aotbuild/images";
    EXPECT_EQ(probe(root, prefix / folder / "libprobe.so"), expected + "\n");
  }
}

TEST_F(Search, LibraryOutsideAPrefixHasNone) {
  const TemporaryDirectory root;
  const std::string base = root.path().string();
  EXPECT_EQ(probe(root, "liberty/libs/libprobe.so"),
            "beside the library=" + base + "/liberty/libs/aotbuild.images\n");
}

TEST_F(Search, RealFileOfALinkedLibraryDecides) {
  const TemporaryDirectory root;
  const std::string base = root.path().string();
  const std::string direct = probe(root, "größe/lib/libprobe.so.0.1");
  fs::create_directories(root.path() / "elsewhere");
  fs::create_symlink(root.path() / "größe/lib/libprobe.so.0.1",
                     root.path() / "elsewhere/libprobe.so");
  EXPECT_EQ(call_probe(root.path() / "elsewhere/libprobe.so"), direct);
  EXPECT_NE(direct.find(base + "/größe/share/aotbuild/images"), std::string::npos) << direct;
}

}  // namespace
}  // namespace aotbuild
