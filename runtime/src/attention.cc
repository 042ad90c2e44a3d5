#include "attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "call.h"
#include "contracts.h"
#include "error.h"
#include "launch.h"
#include "text.h"

namespace aotbuild {
namespace {

constexpr int64_t kMaxHeadDim = 256;
constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();

constexpr int64_t kFloat16 = 2 | 16 << 8;
constexpr int64_t kFloat32 = 2 | 32 << 8;
constexpr int64_t kBfloat16 = 4 | 16 << 8;

[[noreturn]] void fail(const std::string& message) {
  throw Error(AOTBUILD_ERROR_INVALID_ARGUMENT, "attention.forward: " + message);
}

int64_t dtype_of(const aotbuild_tensor& tensor) {
  return tensor.dtype.code | tensor.dtype.bits << 8;
}

std::string shape_text(const aotbuild_tensor& tensor) {
  std::string text = "(";
  for (int i = 0; i < tensor.ndim; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(tensor.shape[i]);
  }
  return text + ")";
}

void check_sizes(const char* name, const aotbuild_tensor* tensor, int rank) {
  if (tensor == nullptr) fail(std::string(name) + " is null");
  if (tensor->ndim != rank) {
    fail(std::string(name) + " has " + std::to_string(tensor->ndim) + " dimensions, expected " +
         std::to_string(rank));
  }
  if (tensor->shape == nullptr) fail(std::string(name) + " has a null shape");
  for (int i = 0; i < rank; ++i) {
    if (tensor->shape[i] < 0 || tensor->shape[i] > kMaxSize) {
      fail(std::string(name) + " has shape " + shape_text(*tensor) +
           "; sizes must be 0 to 2147483647");
    }
  }
}

void check_dtype(const char* name, const aotbuild_tensor& tensor, int64_t expected) {
  if (dtype_of(tensor) == expected && tensor.dtype.lanes == 1) return;
  fail(std::string(name) + " has dtype " + dtype_text(dtype_of(tensor)) + " with " +
       std::to_string(tensor.dtype.lanes) + " lanes, expected " + dtype_text(expected) + " with 1");
}

// `expected` is in the words of the header; `fits` says whether the shape is that.
void check_shape(const char* name, const aotbuild_tensor& tensor, bool fits, const char* expected,
                 const aotbuild_tensor& q) {
  if (fits) return;
  fail(std::string(name) + " has shape " + shape_text(tensor) + ", expected " + expected +
       " where q is (B, Hq, Sq, D) = " + shape_text(q));
}

// Elements of a result must not lie on each other: it would depend on which is written last.
void check_written(const char* name, const aotbuild_tensor& tensor) {
  if (extent_of(tensor) == 0) return;  // an empty tensor has strides of 0
  for (int i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] > 1 && stride_of(tensor, i) == 0) {
      fail(std::string(name) + " has stride 0 in dimension " + std::to_string(i) + " of size " +
           std::to_string(tensor.shape[i]) +
           "; it is written, so every element "
           "needs its own place");
    }
  }
}

void check_tensors(const aotbuild_attention_forward_args& args) {
  check_sizes("q", args.q, 4);
  check_sizes("k", args.k, 4);
  check_sizes("v", args.v, 4);
  check_sizes("out", args.out, 4);
  const aotbuild_tensor& q = *args.q;
  const int64_t* shape_q = q.shape;
  const int64_t* shape_k = args.k->shape;
  const int64_t dtype = dtype_of(q);
  if (dtype != kFloat16 && dtype != kBfloat16 && dtype != kFloat32) {
    fail("q has dtype " + dtype_text(dtype) + ", expected float16, bfloat16 or float32");
  }
  check_dtype("q", q, dtype);
  check_dtype("k", *args.k, dtype);
  check_dtype("v", *args.v, dtype);
  check_dtype("out", *args.out, dtype);
  if (shape_q[3] < 1 || shape_q[3] > kMaxHeadDim) {
    fail("q has shape " + shape_text(q) + "; the head dimension must be 1 to " +
         std::to_string(kMaxHeadDim));
  }
  check_shape("k", *args.k, shape_k[0] == shape_q[0] && shape_k[3] == shape_q[3], "(B, Hk, Sk, D)",
              q);
  check_shape("v", *args.v, std::equal(shape_k, shape_k + 4, args.v->shape),
              ("that of k, " + shape_text(*args.k) + ",").c_str(), q);
  check_shape("out", *args.out, std::equal(shape_q, shape_q + 4, args.out->shape), "(B, Hq, Sq, D)",
              q);
  if (shape_q[1] != 0 && (shape_k[1] == 0 || shape_q[1] % shape_k[1] != 0)) {
    fail("q has " + std::to_string(shape_q[1]) + " heads and k " + std::to_string(shape_k[1]) +
         "; those of q must be a multiple of those of k");
  }
  check_written("out", *args.out);
  if (args.lse == nullptr) return;
  check_sizes("lse", args.lse, 3);
  check_dtype("lse", *args.lse, kFloat32);
  check_shape("lse", *args.lse, std::equal(shape_q, shape_q + 3, args.lse->shape), "(B, Hq, Sq)",
              q);
  check_written("lse", *args.lse);
}

void check_numbers(const aotbuild_attention_forward_args& args) {
  if (!std::isfinite(args.scale)) {
    fail("scale is " + std::to_string(args.scale) + "; it must be finite");
  }
  if (args.window_left < 0 || args.window_right < 0) {
    fail("the window is " + std::to_string(args.window_left) + " to the left and " +
         std::to_string(args.window_right) +
         " to the right; bounds are 0 or more, and no bound is AOTBUILD_UNLIMITED");
  }
  if (args.window_align != AOTBUILD_ALIGN_UPPER_LEFT &&
      args.window_align != AOTBUILD_ALIGN_LOWER_RIGHT) {
    fail("window_align is " + std::to_string(args.window_align) +
         "; expected 0 (upper left) or 1 (lower right)");
  }
  if (args.allow_tf32 != 0 && args.allow_tf32 != 1) {
    fail("allow_tf32 is " + std::to_string(args.allow_tf32) + "; expected 0 or 1");
  }
}

int32_t saturate(int64_t value) {
  return static_cast<int32_t>(std::clamp<int64_t>(value, std::numeric_limits<int32_t>::min(),
                                                  std::numeric_limits<int32_t>::max()));
}

Call make_call(const aotbuild_attention_forward_args& args) {
  Call call;
  call.add("q", args.q);
  call.add("k", args.k);
  call.add("v", args.v);
  call.add("out", args.out);
  call.add("lse", args.lse);
  const Window window = attention_window(args.window_left, args.window_right, args.window_align,
                                         args.q->shape[2], args.k->shape[2]);
  const bool tf32 = args.allow_tf32 != 0 && dtype_of(*args.q) == kFloat32;
  call.add("tf32", int64_t{tf32});
  call.add("windowed", int64_t{window.cuts});
  call.add("scale", args.scale);
  call.add("window_low", int64_t{window.low});
  call.add("window_high", int64_t{window.high});
  return call;
}

// No query, nothing to write. No key is another matter: out is 0 then, and must be written.
bool is_empty(const aotbuild_attention_forward_args& args) {
  return std::any_of(args.q->shape, args.q->shape + 3, [](int64_t size) { return size == 0; });
}

template <class Run>
void with_request(const aotbuild_attention_forward_args& args, const Run& run) {
  check_tensors(args);
  check_numbers(args);
  const Call call = make_call(args);
  static_cast<void>(call.device());  // they must agree even when there is nothing to do
  if (is_empty(args)) return;
  run(LaunchRequest{"attention", "forward", contracts::kAttentionForward, call, args.stream,
                    args.workspace, args.workspace_size});
}

}  // namespace

Window attention_window(int64_t left, int64_t right, int32_t align, int64_t seqlen_q,
                        int64_t seqlen_k) {
  // Distances j - i lie within +-2^31, so a bound of 2^33 is as good as a greater one, and adding
  // the shift to it cannot overflow. Bounds beyond 32 bits cut nothing and may be brought back.
  constexpr int64_t kFar = int64_t{1} << 33;
  const int64_t shift = align == AOTBUILD_ALIGN_LOWER_RIGHT ? seqlen_k - seqlen_q : 0;
  const bool no_left = left == AOTBUILD_UNLIMITED;
  const bool no_right = right == AOTBUILD_UNLIMITED;
  const int64_t low = no_left ? -kFar : shift - std::min(left, kFar);
  const int64_t high = no_right ? kFar : shift + std::min(right, kFar);
  const bool pairs = seqlen_q > 0 && seqlen_k > 0;
  const bool cuts = pairs && (low > 1 - seqlen_q || high < seqlen_k - 1);
  return {saturate(low), saturate(high), cuts};
}

void attention_forward(aotbuild_library& library, const aotbuild_attention_forward_args& args) {
  with_request(args, [&](const LaunchRequest& request) { launch(library, request); });
}

void attention_forward_query(aotbuild_library& library, const aotbuild_attention_forward_args& args,
                             aotbuild_launch_info* info) {
  info->pack = "";
  info->image = "";
  info->workspace_align = 1;
  with_request(args, [&](const LaunchRequest& request) { query(library, request, info); });
}

}  // namespace aotbuild
