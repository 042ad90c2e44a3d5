// The one path of every call: validate, dispatch, load, fill the arguments, launch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "aotbuild/aotbuild.h"
#include "arguments.h"
#include "call.h"
#include "driver.h"
#include "library.h"

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

// A launch made ready: validated, dispatched, loaded, its arguments filled. An operator of several
// kernels makes all of them ready before it launches the first.
class PreparedLaunch {
 public:
  // Throws Error with any status; nothing has been launched then.
  PreparedLaunch(aotbuild_library& library, const LaunchRequest& request);
  // Throws DRIVER if the driver refuses. Does nothing where the grid is empty.
  void launch();

 private:
  DeviceState* device_;
  LaunchConfig config_;
  aotbuild_stream stream_;
  const Kernel* kernel_ = nullptr;
  std::optional<Arguments> arguments_;  // none where the grid is empty
};

inline void launch(aotbuild_library& library, const LaunchRequest& request) {
  PreparedLaunch(library, request).launch();
}
// What launch() would run. Loads nothing.
void query(aotbuild_library& library, const LaunchRequest& request, aotbuild_launch_info* info);

}  // namespace aotbuild
