// Contract versions that the front ends of this library call, as in kernels/<family>/spec.py.
// CMake reads these lines for the runtime's manifest: one operator a line, named by its comment.
#pragma once

#include <cstdint>

namespace aotbuild::contracts {

inline constexpr uint32_t kAttentionBackwardDelta = 1;  // attention.backward_delta
inline constexpr uint32_t kAttentionBackwardDkdv = 1;   // attention.backward_dkdv
inline constexpr uint32_t kAttentionBackwardDq = 1;     // attention.backward_dq
inline constexpr uint32_t kAttentionForward = 1;        // attention.forward

}  // namespace aotbuild::contracts
