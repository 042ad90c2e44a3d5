// The one path of every call: validate, dispatch, load, fill the arguments, launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "aotbuild/aotbuild.h"
#include "call.h"

namespace aotbuild {

inline constexpr uint32_t kAnyContract = 0;

struct LaunchRequest {
  std::string_view family;
  std::string_view op;
  uint32_t contract;  // version that a front end was written for, or kAnyContract
  const Call& call;
  aotbuild_stream stream;
  void* workspace;
  size_t workspace_size;
};

// Throws Error with any status; nothing has been launched then.
void launch(aotbuild_library& library, const LaunchRequest& request);
// What launch() would run. Loads nothing.
void query(aotbuild_library& library, const LaunchRequest& request, aotbuild_launch_info* info);

}  // namespace aotbuild
