// Attention: what is particular to its operators. The rest is the one path of launch.h.
#pragma once

#include "aotbuild/aotbuild.h"

namespace aotbuild {

void attention(aotbuild_library& library, const aotbuild_attention_forward_args& args);
void attention(aotbuild_library& library, const aotbuild_attention_backward_args& args);
void attention_query(aotbuild_library& library, const aotbuild_attention_forward_args& args,
                     aotbuild_launch_info* info);
void attention_query(aotbuild_library& library, const aotbuild_attention_backward_args& args,
                     aotbuild_launch_info* info);

// The window of a call as kernels take it: query i sees key j when low <= j - i <= high.
struct Window {
  int32_t low;
  int32_t high;
  bool cuts;  // some pair of query and key is not visible
};
Window attention_window(int64_t left, int64_t right, int32_t align, int64_t seqlen_q,
                        int64_t seqlen_k);

}  // namespace aotbuild
