#include "call.h"

#include <algorithm>
#include <limits>

#include "error.h"
#include "text.h"

namespace aotbuild {
namespace {

using format::SourceKind;

[[noreturn]] void fail_argument(const std::string& message) {
  throw Error(AOTBUILD_ERROR_INVALID_ARGUMENT, message);
}

std::string device_text(const aotbuild_tensor& tensor) {
  return "device " + std::to_string(tensor.device.device_type) + ":" +
         std::to_string(tensor.device.device_id);
}

uint16_t dtype_of(const aotbuild_tensor& tensor) {
  return static_cast<uint16_t>(tensor.dtype.code | tensor.dtype.bits << 8);
}

bool is_empty(const aotbuild_tensor& tensor) {
  return std::find(tensor.shape, tensor.shape + tensor.ndim, 0) != tensor.shape + tensor.ndim;
}

// A tensor under validation: "tensor 'q' of operator 'forward'".
class TensorCheck {
 public:
  TensorCheck(const Pack& pack, const format::Operator& op, const format::Tensor& declared,
              const aotbuild_tensor& tensor)
      : pack_(pack), op_(op), declared_(declared), tensor_(tensor) {}

  void check(const Call& call) const {
    check_rank();
    check_shape();
    check_dtype(call);
    check_last_dim();
    check_memory();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    fail_argument("tensor " + quoted(pack_.string(declared_.name)) + " of operator " +
                  quoted(pack_.string(op_.name)) + " " + what);
  }
  void check_rank() const;
  void check_shape() const;
  void check_dtype(const Call& call) const;
  void check_last_dim() const;
  void check_memory() const;

  const Pack& pack_;
  const format::Operator& op_;
  const format::Tensor& declared_;
  const aotbuild_tensor& tensor_;
};

void TensorCheck::check_rank() const {
  if (tensor_.ndim != declared_.rank) {
    fail("has " + std::to_string(tensor_.ndim) + " dimensions, expected " +
         std::to_string(declared_.rank));
  }
  if (tensor_.shape == nullptr) {
    fail("has a null shape");
  }
}

void TensorCheck::check_shape() const {
  for (int dim = 0; dim < tensor_.ndim; ++dim) {
    if (tensor_.shape[dim] < 0) {
      fail("has size " + std::to_string(tensor_.shape[dim]) + " in dimension " +
           std::to_string(dim) + ", expected 0 or more");
    }
    if (tensor_.strides != nullptr && tensor_.strides[dim] < 0) {
      fail("has stride " + std::to_string(tensor_.strides[dim]) + " in dimension " +
           std::to_string(dim) + ", expected 0 or more");
    }
  }
}

void TensorCheck::check_dtype(const Call& call) const {
  if (tensor_.dtype.lanes != 1 || tensor_.dtype.bits == 0) {
    fail("has elements of " + std::to_string(tensor_.dtype.lanes) + " lanes of " +
         std::to_string(tensor_.dtype.bits) + " bits, expected 1 lane of 1 bit or more");
  }
  const uint16_t seen = dtype_of(tensor_);
  if (declared_.dtype != 0 && seen != declared_.dtype) {
    fail("has dtype " + dtype_text(seen) + ", expected " + dtype_text(declared_.dtype));
  }
  if (declared_.same_dtype_as == format::kNone) {
    return;
  }
  const std::string_view name = pack_.string(pack_.tensors(op_)[declared_.same_dtype_as].name);
  const aotbuild_tensor* other = call.tensor(name);
  if (other != nullptr && seen != dtype_of(*other)) {
    fail("has dtype " + dtype_text(seen) + ", expected that of tensor " + quoted(name) + ", " +
         dtype_text(dtype_of(*other)));
  }
}

void TensorCheck::check_last_dim() const {
  const int last = tensor_.ndim - 1;
  if ((declared_.flags & format::kContiguousLast) != 0 && tensor_.shape[last] > 1 &&
      stride_of(tensor_, last) != 1) {
    fail("has stride " + std::to_string(stride_of(tensor_, last)) +
         " in its last dimension, expected 1 (contiguous)");
  }
}

void TensorCheck::check_memory() const {
  if (is_empty(tensor_)) {
    return;
  }
  if (tensor_.data == nullptr) {
    fail("has null data but is not empty");
  }
  const uint64_t extent = extent_of(tensor_);
  const uint64_t start = address_of(tensor_);
  if (extent > std::numeric_limits<uint64_t>::max() - start) {
    fail("reaches beyond the address space: its sizes and strides are wrong");
  }
}

// Whether any source of a record range reads the value `name`.
template <class Records>
bool reads_value(const Pack& pack, const Records& records, std::string_view name) {
  return std::any_of(records.begin(), records.end(), [&](const auto& record) {
    return record.source_kind == SourceKind::kValue && pack.string(record.source_name) == name;
  });
}

// A column or an image of the operator reads the value. The first image reads most of them, so a
// call without mistakes is settled there.
bool knows_value(const Pack& pack, const format::Operator& op, std::string_view name) {
  if (reads_value(pack, pack.columns(op), name)) {
    return true;
  }
  const auto rows = pack.rows(op);
  return std::any_of(rows.begin(), rows.end(), [&](const format::Row& row) {
    if (row.image == format::kNone) {
      return false;
    }
    const format::Image& image = pack.images()[row.image];
    return reads_value(pack, pack.arguments(image), name) ||
           reads_value(pack, pack.factors(image), name);
  });
}

// Names of the call that the operator does not know, or that come twice.
void check_names(const Pack& pack, const format::Operator& op, const Call& call) {
  const auto declared = pack.tensors(op);
  const auto fail = [&](const char* kind, std::string_view name, const std::string& what) {
    fail_argument(kind + quoted(name) + " of operator " + quoted(pack.string(op.name)) + what);
  };
  for (const NamedTensor& given : call.tensors()) {
    const auto same = [&](const NamedTensor& other) { return other.name == given.name; };
    if (std::count_if(call.tensors().begin(), call.tensors().end(), same) > 1) {
      fail("tensor ", given.name, " is given twice");
    }
    if (std::none_of(declared.begin(), declared.end(), [&](const format::Tensor& tensor) {
          return pack.string(tensor.name) == given.name;
        })) {
      std::string known;
      for (const format::Tensor& tensor : declared) {
        known += (known.empty() ? "" : ", ") + std::string(pack.string(tensor.name));
      }
      fail("tensor ", given.name, " is unknown; it has " + known);
    }
  }
  for (const NamedValue& given : call.values()) {
    const auto same = [&](const NamedValue& other) { return other.name == given.name; };
    if (std::count_if(call.values().begin(), call.values().end(), same) > 1) {
      fail("value ", given.name, " is given twice");
    }
    if (!knows_value(pack, op, given.name)) {
      fail("value ", given.name, " is unknown: neither its dispatch nor its images read it");
    }
  }
}

}  // namespace

void Call::add(std::string_view name, const aotbuild_tensor* tensor) {
  tensors_.push_back({name, tensor});
}

void Call::add(std::string_view name, int64_t value) {
  values_.push_back({name, false, value, 0.0});
}

void Call::add(std::string_view name, double value) { values_.push_back({name, true, 0, value}); }

const aotbuild_tensor* Call::tensor(std::string_view name) const {
  for (const NamedTensor& given : tensors_) {
    if (given.name == name) {
      return given.tensor;
    }
  }
  return nullptr;
}

const NamedValue* Call::value(std::string_view name) const {
  for (const NamedValue& given : values_) {
    if (given.name == name) {
      return &given;
    }
  }
  return nullptr;
}

Call::Device Call::device() const {
  const NamedTensor* first = nullptr;
  for (const NamedTensor& given : tensors_) {
    if (given.tensor == nullptr) {
      continue;
    }
    if (first == nullptr) {
      first = &given;
      continue;
    }
    const auto& expected = first->tensor->device;
    const auto& seen = given.tensor->device;
    if (seen.device_type != expected.device_type || seen.device_id != expected.device_id) {
      fail_argument("tensor " + quoted(given.name) + " is on " + device_text(*given.tensor) +
                    " (DLPack type:number), expected " + device_text(*first->tensor) +
                    " as tensor " + quoted(first->name));
    }
  }
  if (first == nullptr) {
    fail_argument("the call has no tensor, so no device to run on");
  }
  return {first->tensor->device.device_type, first->tensor->device.device_id};
}

int64_t Call::integer(SourceKind kind, std::string_view name, int dim) const {
  if (kind == SourceKind::kValue) {
    const NamedValue* given = value(name);
    if (given == nullptr) {
      throw Error(AOTBUILD_ERROR_CONTRACT,
                  "the pack reads a value " + quoted(name) + " that the call does not pass");
    }
    if (given->is_real) {
      fail_argument("value " + quoted(name) + " is the real number " + std::to_string(given->real) +
                    ", expected an integer");
    }
    return given->integer;
  }
  const auto given = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const NamedTensor& other) { return other.name == name; });
  if (given == tensors_.end()) {
    throw Error(AOTBUILD_ERROR_CONTRACT,
                "the pack reads a tensor " + quoted(name) + " that the call does not pass");
  }
  const aotbuild_tensor* tensor = given->tensor;
  if (tensor == nullptr) {
    return 0;
  }
  switch (kind) {
    case SourceKind::kPointer:
      return static_cast<int64_t>(address_of(*tensor));
    case SourceKind::kSize:
    case SourceKind::kStride:
      if (dim < 0 || dim >= tensor->ndim) {
        throw Error(AOTBUILD_ERROR_CONTRACT, "the pack reads dimension " + std::to_string(dim) +
                                                 " of tensor " + quoted(name) + ", which has " +
                                                 std::to_string(tensor->ndim));
      }
      return kind == SourceKind::kSize ? tensor->shape[dim] : stride_of(*tensor, dim);
    case SourceKind::kDtype:
      return dtype_of(*tensor);
    case SourceKind::kPresent:
      return 1;
    default:
      throw Error(AOTBUILD_ERROR_INTERNAL,
                  "source kind " + std::to_string(static_cast<int>(kind)) + " is no number");
  }
}

int64_t stride_of(const aotbuild_tensor& tensor, int dim) {
  if (tensor.strides != nullptr) {
    return tensor.strides[dim];
  }
  int64_t stride = 1;
  for (int inner = dim + 1; inner < tensor.ndim; ++inner) {
    if (__builtin_mul_overflow(stride, tensor.shape[inner], &stride)) {
      return std::numeric_limits<int64_t>::max();  // such an extent overflows, too
    }
  }
  return stride;
}

uint64_t address_of(const aotbuild_tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data) + tensor.byte_offset;
}

uint64_t extent_of(const aotbuild_tensor& tensor) {
  constexpr uint64_t kTooFar = std::numeric_limits<uint64_t>::max();
  if (is_empty(tensor)) {
    return 0;
  }
  uint64_t elements = 1;
  for (int dim = 0; dim < tensor.ndim; ++dim) {
    const int64_t stride = stride_of(tensor, dim);
    uint64_t reach;
    if (stride < 0 ||
        __builtin_mul_overflow(static_cast<uint64_t>(tensor.shape[dim] - 1),
                               static_cast<uint64_t>(stride), &reach) ||
        __builtin_add_overflow(elements, reach, &elements)) {
      return kTooFar;
    }
  }
  const uint64_t bits = uint64_t{tensor.dtype.bits} * tensor.dtype.lanes;
  const bool whole_bytes = bits % 8 == 0;
  uint64_t total;
  if (__builtin_mul_overflow(elements, whole_bytes ? bits / 8 : bits, &total)) {
    return kTooFar;
  }
  return whole_bytes ? total : total / 8 + (total % 8 != 0 ? 1 : 0);
}

void validate_call(const Pack& pack, const format::Operator& op, const Call& call) {
  check_names(pack, op, call);
  for (const format::Tensor& declared : pack.tensors(op)) {
    const std::string_view name = pack.string(declared.name);
    const auto& given = call.tensors();
    const auto found = std::find_if(given.begin(), given.end(),
                                    [&](const NamedTensor& other) { return other.name == name; });
    const bool optional = (declared.flags & format::kOptional) != 0;
    if (found == given.end() || (found->tensor == nullptr && !optional)) {
      fail_argument("tensor " + quoted(name) + " of operator " + quoted(pack.string(op.name)) +
                    (found == given.end() ? " is missing" : " is null") +
                    (optional ? "; pass null when there is none" : ""));
    }
    if (found->tensor != nullptr) {
      TensorCheck(pack, op, declared, *found->tensor).check(call);
    }
  }
  static_cast<void>(call.device());
}

}  // namespace aotbuild
