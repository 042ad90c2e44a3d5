// torch.ops.aotbuild_example.attention(query, key, value, *, is_causal=False, scale=None)
//     -> (out, logsumexp)
//
// The arguments mean what those of torch.nn.functional.scaled_dot_product_attention mean. No header
// of CUDA or HIP: torch itself tells the stream and describes its tensors, so that one source, and
// one binary per version of torch, serves both.
#include <ATen/DLConvertor.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <aotbuild/aotbuild.hpp>
#include <cmath>
#include <optional>
#include <tuple>

namespace {

using Outputs = std::tuple<at::Tensor, at::Tensor>;

// Never destroyed: when the process ends, the driver may be gone before a destructor runs.
const aotbuild::Library& library() {
  static const auto* const library = new aotbuild::Library;
  return *library;
}

// A tensor as aotbuild takes it, valid as long as the tensor is.
class View {
 public:
  explicit View(const at::Tensor& tensor) { at::toDLPackNonOwning(tensor, &view_); }
  const aotbuild_tensor* get() const { return reinterpret_cast<const aotbuild_tensor*>(&view_); }

 private:
  DLTensor view_ = {};
};

// Torch's exception for what aotbuild reports; "not implemented" is for callers to fall back on
// another attention.
[[noreturn]] void raise(const aotbuild::Error& error) {
  switch (error.status()) {
    case AOTBUILD_ERROR_INVALID_ARGUMENT:
      C10_THROW_ERROR(ValueError, error.what());
    case AOTBUILD_ERROR_UNSUPPORTED:
    case AOTBUILD_ERROR_NO_PACK:
    case AOTBUILD_ERROR_NO_IMAGE:
    case AOTBUILD_ERROR_NO_DRIVER:
      C10_THROW_ERROR(NotImplementedError, error.what());
    default:
      C10_THROW_ERROR(Error, error.what());
  }
}

// Device code writes the outputs of attention_gpu; shapes are all that the Meta kernel is asked
// for.
Outputs attention_meta(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       bool /*is_causal*/, std::optional<double> /*scale*/) {
  for (const at::Tensor* tensor : {&query, &key, &value}) {
    TORCH_CHECK_VALUE(tensor->dim() == 4, "expected tensors (batch, heads, seqlen, head_dim), got ",
                      tensor->dim(), " dimensions");
  }
  const c10::SymIntArrayRef sizes = query.sym_sizes();
  return {at::empty_like(query),
          at::empty_symint(sizes.slice(0, 3), query.options().dtype(at::kFloat))};
}

Outputs attention_gpu(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                      bool is_causal, std::optional<double> scale) {
  const Outputs outputs = attention_meta(query, key, value, is_causal, scale);
  const View q(query);
  const View k(key);
  const View v(value);
  const View out(std::get<0>(outputs));
  const View lse(std::get<1>(outputs));
  aotbuild_attention_forward_args args = AOTBUILD_INIT(aotbuild_attention_forward_args);
  args.q = q.get();
  args.k = k.get();
  args.v = v.get();
  args.out = out.get();
  args.lse = lse.get();
  args.scale = scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
  args.window_left = AOTBUILD_UNLIMITED;
  args.window_right = is_causal ? 0 : AOTBUILD_UNLIMITED;
  args.window_align = AOTBUILD_ALIGN_UPPER_LEFT;
  // The current stream of the tensors' device, which need not be the current device.
  args.stream = at::accelerator::getCurrentStream(query.device().index()).native_handle();
  try {
    library().attention_forward(args);
  } catch (const aotbuild::Error& error) {
    raise(error);
  }
  return outputs;
}

Outputs attention_cpu(const at::Tensor& query, const at::Tensor& /*key*/,
                      const at::Tensor& /*value*/, bool /*is_causal*/,
                      std::optional<double> /*scale*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "aotbuild_example::attention: expected tensors on a GPU, got ",
                              query.device());
}

}  // namespace

TORCH_LIBRARY(aotbuild_example, library) {
  library.def(
      "attention(Tensor query, Tensor key, Tensor value, *, bool is_causal=False, "
      "float? scale=None) -> (Tensor out, Tensor logsumexp)",
      {at::Tag::pt2_compliant_tag});
}

// Torch for ROCm calls its devices CUDA, too.
TORCH_LIBRARY_IMPL(aotbuild_example, CUDA, library) { library.impl("attention", &attention_gpu); }
TORCH_LIBRARY_IMPL(aotbuild_example, Meta, library) { library.impl("attention", &attention_meta); }
TORCH_LIBRARY_IMPL(aotbuild_example, CPU, library) { library.impl("attention", &attention_cpu); }
// backward() then says that there is no gradient.
TORCH_LIBRARY_IMPL(aotbuild_example, Autograd, library) {
  library.impl("attention", torch::autograd::autogradNotImplementedFallback());
}
