#include "search.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace aotbuild {
namespace {

namespace fs = std::filesystem;

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// Entries in order; a directory met before under any spelling is left out.
class Path {
 public:
  void add(const fs::path& directory, const char* origin) {
    std::error_code error;
    fs::path real = fs::weakly_canonical(directory, error);
    if (error) {
      real = directory.lexically_normal();
    }
    if (!real.has_filename()) {  // "a/" and "a" are one directory
      real = real.parent_path();
    }
    if (std::find(seen_.begin(), seen_.end(), real) != seen_.end()) {
      return;
    }
    seen_.push_back(std::move(real));
    entries_.push_back({directory.string(), origin});
  }
  std::vector<SearchEntry> take() { return std::move(entries_); }

 private:
  std::vector<fs::path> seen_;
  std::vector<SearchEntry> entries_;
};

// The caller has checked them (api.cc).
void add_all(const char* const* paths, size_t count, const char* origin, Path& path) {
  for (size_t i = 0; i < count; ++i) path.add(paths[i], origin);
}

void add_environment(Path& path) {
  std::string_view rest = environment("AOTBUILD_IMAGE_PATH");
  while (!rest.empty()) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    if (colon > 0) {
      path.add(rest.substr(0, colon), "AOTBUILD_IMAGE_PATH");
    }
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
}

// The prefix a library is installed in: the parent of its lib folder, which may be an ancestor
// (lib/x86_64-linux-gnu). Empty when it lies in none, as in a build tree.
fs::path prefix_of(const fs::path& library) {
  static constexpr std::array<std::string_view, 4> kLibraryFolders = {"lib", "lib64", "lib32",
                                                                      "libx32"};
  for (fs::path folder = library; folder.has_relative_path(); folder = folder.parent_path()) {
    const std::string name = folder.filename().string();
    if (std::find(kLibraryFolders.begin(), kLibraryFolders.end(), name) != kLibraryFolders.end()) {
      return folder.parent_path();
    }
  }
  return {};
}

void add_installed(Path& path) {
  const fs::path library = library_directory();
  if (library.empty()) {
    return;
  }
  path.add(library / "aotbuild.images", "beside the library");
  const fs::path prefix = prefix_of(library);
  if (!prefix.empty()) {
    path.add(prefix / "share/aotbuild/images", "installation prefix");
  }
}

void add_user(Path& path) {
  // The XDG specification says that a relative path here must be ignored.
  const fs::path data = environment("XDG_DATA_HOME");
  const fs::path home = environment("HOME");
  if (data.is_absolute()) {
    path.add(data / "aotbuild/images", "XDG_DATA_HOME");
  } else if (home.is_absolute()) {
    path.add(home / ".local/share/aotbuild/images", "home directory");
  }
}

}  // namespace

std::vector<SearchEntry> search_path(const aotbuild_open_options* options) {
  static constexpr aotbuild_open_options kNone = {};
  const aotbuild_open_options& given = options == nullptr ? kNone : *options;
  Path path;
  add_all(given.paths, given.path_count, "set by API", path);
  if (given.paths_only == 0) {
    add_environment(path);
    add_installed(path);
    add_all(given.wheel_paths, given.wheel_count, "image wheel", path);
    add_user(path);
  }
  return path.take();
}

std::string library_directory() {
  Dl_info info;
  // Any object of this library serves: the answer is the file that holds it.
  static const char anchor = 0;
  if (dladdr(&anchor, &info) == 0 || info.dli_fname == nullptr) {
    return "";
  }
  std::error_code error;
  const fs::path real = fs::canonical(info.dli_fname, error);
  return error ? "" : real.parent_path().string();
}

}  // namespace aotbuild
