// The search path for packs (docs/design.md, Finding packs).
#pragma once

#include <string>
#include <vector>

#include "aotbuild/aotbuild.h"

namespace aotbuild {

struct SearchEntry {
  std::string directory;
  std::string origin;  // "set by API", "AOTBUILD_IMAGE_PATH", "beside the library", ...
};

// All directories, existing or not, in order, without duplicates. `options` may be null; its paths
// have been checked.
std::vector<SearchEntry> search_path(const aotbuild_open_options* options);

// Folder of the real file (links resolved) of this library, "" if it cannot be told.
std::string library_directory();

}  // namespace aotbuild
