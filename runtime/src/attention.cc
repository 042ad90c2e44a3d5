#include "attention.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
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

bool any_zero(const aotbuild_tensor& tensor) {  // among batch, heads and rows
  return std::any_of(tensor.shape, tensor.shape + 3, [](int64_t size) { return size == 0; });
}

// What forward and backward have in common, and its checks. Throws INVALID_ARGUMENT in the words of
// aotbuild.h.
class Problem {
 public:
  template <class Args>
  Problem(const char* name, const Args& args)
      : name_(name),
        q_(args.q),
        k_(args.k),
        v_(args.v),
        scale_(args.scale),
        left_(args.window_left),
        right_(args.window_right),
        align_(args.window_align),
        allow_tf32_(args.allow_tf32) {}

  void check_inputs() const {
    check_sizes("q", q_, 4);
    check_sizes("k", k_, 4);
    check_sizes("v", v_, 4);
    const int64_t* shape_q = q_->shape;
    const int64_t* shape_k = k_->shape;
    const int64_t dtype = dtype_of(*q_);
    if (dtype != kFloat16 && dtype != kBfloat16 && dtype != kFloat32) {
      fail("q has dtype " + dtype_text(dtype) + ", expected float16, bfloat16 or float32");
    }
    check_dtype("q", *q_, dtype);
    check_dtype("k", *k_, dtype);
    check_dtype("v", *v_, dtype);
    if (shape_q[3] < 1 || shape_q[3] > kMaxHeadDim) {
      fail("q has shape " + shape_text(*q_) + "; the head dimension must be 1 to " +
           std::to_string(kMaxHeadDim));
    }
    check_shape("k", *k_, shape_k[0] == shape_q[0] && shape_k[3] == shape_q[3], "(B, Hk, Sk, D)");
    check_shape("v", *v_, std::equal(shape_k, shape_k + 4, v_->shape),
                ("that of k, " + shape_text(*k_) + ",").c_str());
    if (shape_q[1] != 0 && (shape_k[1] == 0 || shape_q[1] % shape_k[1] != 0)) {
      fail("q has " + std::to_string(shape_q[1]) + " heads and k " + std::to_string(shape_k[1]) +
           "; those of q must be a multiple of those of k");
    }
    check_numbers();
  }

  // A tensor of the shape and dtype of q, or of k.
  void check_like_q(const char* name, const aotbuild_tensor* tensor) const {
    check_sizes(name, tensor, 4);
    check_dtype(name, *tensor, dtype_of(*q_));
    check_shape(name, *tensor, std::equal(q_->shape, q_->shape + 4, tensor->shape),
                "(B, Hq, Sq, D)");
  }
  void check_like_k(const char* name, const aotbuild_tensor* tensor) const {
    check_sizes(name, tensor, 4);
    check_dtype(name, *tensor, dtype_of(*q_));
    check_shape(name, *tensor, std::equal(k_->shape, k_->shape + 4, tensor->shape),
                ("that of k, " + shape_text(*k_) + ",").c_str());
  }
  void check_rows(const char* name, const aotbuild_tensor* tensor) const {
    check_sizes(name, tensor, 3);
    check_dtype(name, *tensor, kFloat32);
    check_shape(name, *tensor, std::equal(q_->shape, q_->shape + 3, tensor->shape), "(B, Hq, Sq)");
  }

  // Elements of a result must not lie on each other: it would depend on which is written last.
  void check_written(const char* name, const aotbuild_tensor& tensor) const {
    if (extent_of(tensor) == 0) return;  // an empty tensor has strides of 0
    for (int i = 0; i < tensor.ndim; ++i) {
      if (tensor.shape[i] > 1 && stride_of(tensor, i) == 0) {
        fail(std::string(name) + " has stride 0 in dimension " + std::to_string(i) + " of size " +
             std::to_string(tensor.shape[i]) +
             "; it is written, so every element needs its own place");
      }
    }
  }

  // Tensors by the names of the kernels' description, and the values that all of them take.
  Call call(std::initializer_list<NamedTensor> tensors) const {
    Call call;
    for (const NamedTensor& tensor : tensors) call.add(tensor.name, tensor.tensor);
    const Window window = attention_window(left_, right_, align_, q_->shape[2], k_->shape[2]);
    call.add("tf32", int64_t{allow_tf32_ != 0 && dtype_of(*q_) == kFloat32});
    call.add("windowed", int64_t{window.cuts});
    call.add("scale", scale_);
    call.add("window_low", int64_t{window.low});
    call.add("window_high", int64_t{window.high});
    return call;
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw Error(AOTBUILD_ERROR_INVALID_ARGUMENT, std::string(name_) + ": " + message);
  }

  void check_sizes(const char* name, const aotbuild_tensor* tensor, int rank) const {
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

  void check_dtype(const char* name, const aotbuild_tensor& tensor, int64_t expected) const {
    if (dtype_of(tensor) == expected && tensor.dtype.lanes == 1) return;
    fail(std::string(name) + " has dtype " + dtype_text(dtype_of(tensor)) + " with " +
         std::to_string(tensor.dtype.lanes) + " lanes, expected " + dtype_text(expected) +
         " with 1");
  }

  // `fits` says whether the shape is what `expected` says in the words of the header.
  void check_shape(const char* name, const aotbuild_tensor& tensor, bool fits,
                   const char* expected) const {
    if (fits) return;
    fail(std::string(name) + " has shape " + shape_text(tensor) + ", expected " + expected +
         " where q is (B, Hq, Sq, D) = " + shape_text(*q_));
  }

  void check_numbers() const {
    if (!std::isfinite(scale_)) {
      fail("scale is " + std::to_string(scale_) + "; it must be finite");
    }
    if (left_ < 0 || right_ < 0) {
      fail("the window is " + std::to_string(left_) + " to the left and " + std::to_string(right_) +
           " to the right; bounds are 0 or more, and no bound is AOTBUILD_UNLIMITED");
    }
    if (align_ != AOTBUILD_ALIGN_UPPER_LEFT && align_ != AOTBUILD_ALIGN_LOWER_RIGHT) {
      fail("window_align is " + std::to_string(align_) +
           "; expected 0 (upper left) or 1 (lower right)");
    }
    if (allow_tf32_ != 0 && allow_tf32_ != 1) {
      fail("allow_tf32 is " + std::to_string(allow_tf32_) + "; expected 0 or 1");
    }
  }

  const char* name_;
  const aotbuild_tensor* q_;
  const aotbuild_tensor* k_;
  const aotbuild_tensor* v_;
  double scale_;
  int64_t left_;
  int64_t right_;
  int32_t align_;
  int32_t allow_tf32_;
};

int32_t saturate(int64_t value) {
  return static_cast<int32_t>(std::clamp<int64_t>(value, std::numeric_limits<int32_t>::min(),
                                                  std::numeric_limits<int32_t>::max()));
}

void reset(aotbuild_launch_info* info) {
  info->pack = "";
  info->image = "";
  info->workspace_align = 1;
}

template <class Run>
void with_forward(const aotbuild_attention_forward_args& args, const Run& run) {
  const Problem problem("attention.forward", args);
  problem.check_inputs();
  problem.check_like_q("out", args.out);
  problem.check_written("out", *args.out);
  if (args.lse != nullptr) {
    problem.check_rows("lse", args.lse);
    problem.check_written("lse", *args.lse);
  }
  const Call call = problem.call(
      {{"q", args.q}, {"k", args.k}, {"v", args.v}, {"out", args.out}, {"lse", args.lse}});
  static_cast<void>(call.device());  // they must agree even when there is nothing to do
  // No query, nothing to write. No key is another matter: out is 0 then, and must be written.
  if (any_zero(*args.q)) return;
  run(LaunchRequest{"attention", "forward", contracts::kAttentionForward, call, args.stream,
                    args.workspace, args.workspace_size});
}

// The backward pass. delta, the sum over D of dout * out, goes into the workspace, where the two
// kernels behind it read it. What scratch memory the kernels need follows it; they run one after
// the other, so all may use the same.
class Backward {
 public:
  static constexpr uint64_t kAlign = 256;

  explicit Backward(const aotbuild_attention_backward_args& args)
      : args_(args), problem_("attention.backward", args), delta_(check()) {}

  bool empty() const { return any_zero(*args_.q) && any_zero(*args_.k); }
  // Bytes of delta, rounded up to where the scratch begins.
  uint64_t scratch_offset() const {
    const uint64_t bytes = extent_of(delta_);
    if (bytes > std::numeric_limits<uint64_t>::max() - kAlign) {
      throw Error(AOTBUILD_ERROR_UNSUPPORTED, "attention.backward: lse has shape " +
                                                  shape_text(*args_.lse) +
                                                  ", beyond what can be addressed. Split the call");
    }
    return (bytes + kAlign - 1) / kAlign * kAlign;
  }

  // Throws WORKSPACE unless there is room for delta.
  void check_workspace() const {
    const uint64_t needed = scratch_offset();
    const auto address = reinterpret_cast<uintptr_t>(args_.workspace);
    if (needed == 0) return;
    if (address != 0 && address % kAlign == 0 && args_.workspace_size >= needed) return;
    throw Error(AOTBUILD_ERROR_WORKSPACE,
                "attention.backward needs a workspace of at least " + std::to_string(needed) +
                    " bytes aligned to " + std::to_string(kAlign) + "; got " +
                    std::to_string(args_.workspace_size) + " bytes at address " +
                    std::to_string(address) + ". aotbuild_attention_backward_query tells the size");
  }

  // run(a, b, c), the requests of the three kernels in order.
  template <class Run>
  void with_requests(void* workspace, uint64_t size, const Run& run) {
    delta_.data = workspace;
    const uint64_t offset = scratch_offset();
    void* scratch = offset < size ? static_cast<char*>(workspace) + offset : nullptr;
    const uint64_t scratch_size = offset < size ? size - offset : 0;
    Call delta;
    delta.add("out", args_.out);
    delta.add("dout", args_.dout);
    delta.add("delta", &delta_);
    const Call keys = gradients({{"dk", args_.dk}, {"dv", args_.dv}});
    const Call queries = gradients({{"dq", args_.dq}});
    static_cast<void>(keys.device());  // all of a call's tensors are on one device
    static_cast<void>(queries.device());
    const auto request = [&](const char* op, uint32_t contract, const Call& call) {
      return LaunchRequest{"attention", op, contract, call, args_.stream, scratch, scratch_size};
    };
    run(request("backward_delta", contracts::kAttentionBackwardDelta, delta),
        request("backward_dkdv", contracts::kAttentionBackwardDkdv, keys),
        request("backward_dq", contracts::kAttentionBackwardDq, queries));
  }

 private:
  // The tensor delta, whose place is not known yet.
  aotbuild_tensor check() const {
    problem_.check_inputs();
    problem_.check_like_q("out", args_.out);
    problem_.check_rows("lse", args_.lse);
    problem_.check_like_q("dout", args_.dout);
    problem_.check_like_q("dq", args_.dq);
    problem_.check_like_k("dk", args_.dk);
    problem_.check_like_k("dv", args_.dv);
    problem_.check_written("dq", *args_.dq);
    problem_.check_written("dk", *args_.dk);
    problem_.check_written("dv", *args_.dv);
    aotbuild_tensor delta = *args_.lse;
    delta.data = nullptr;
    delta.strides = nullptr;
    delta.byte_offset = 0;
    return delta;
  }

  Call gradients(std::initializer_list<NamedTensor> written) const {
    Call call = problem_.call({{"q", args_.q},
                               {"k", args_.k},
                               {"v", args_.v},
                               {"dout", args_.dout},
                               {"lse", args_.lse},
                               {"delta", &delta_}});
    for (const NamedTensor& tensor : written) call.add(tensor.name, tensor.tensor);
    return call;
  }

  const aotbuild_attention_backward_args& args_;
  Problem problem_;
  aotbuild_tensor delta_;
};

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

void attention(aotbuild_library& library, const aotbuild_attention_forward_args& args) {
  with_forward(args, [&](const LaunchRequest& request) { launch(library, request); });
}

void attention_query(aotbuild_library& library, const aotbuild_attention_forward_args& args,
                     aotbuild_launch_info* info) {
  reset(info);
  with_forward(args, [&](const LaunchRequest& request) { query(library, request, info); });
}

void attention(aotbuild_library& library, const aotbuild_attention_backward_args& args) {
  Backward backward(args);
  const auto run = [&](const LaunchRequest& delta, const LaunchRequest& keys,
                       const LaunchRequest& queries) {
    if (backward.empty()) return;
    // The device before the workspace: where the tensors are in host memory, that is the news.
    const Call::Device where = delta.call.device();
    static_cast<void>(library.device(where.type, where.id));
    backward.check_workspace();
    PreparedLaunch first(library, delta);
    PreparedLaunch second(library, keys);
    PreparedLaunch third(library, queries);
    first.launch();
    second.launch();
    third.launch();
  };
  backward.with_requests(args.workspace, args.workspace_size, run);
}

void attention_query(aotbuild_library& library, const aotbuild_attention_backward_args& args,
                     aotbuild_launch_info* info) {
  reset(info);
  Backward backward(args);
  const auto run = [&](const LaunchRequest& delta, const LaunchRequest& keys,
                       const LaunchRequest& queries) {
    if (backward.empty()) return;
    uint64_t scratch = 0;
    for (const LaunchRequest* request : {&delta, &queries, &keys}) {
      aotbuild_launch_info part = AOTBUILD_INIT(aotbuild_launch_info);
      query(library, *request, &part);
      scratch = std::max(scratch, part.workspace_size);
      *info = part;
    }
    info->workspace_size = backward.scratch_offset() + scratch;
    info->workspace_align = Backward::kAlign;
  };
  // Stands for the workspace, of which only the alignment is known yet.
  alignas(Backward::kAlign) char anywhere = 0;
  backward.with_requests(&anywhere, 0, run);
}

}  // namespace aotbuild
