// One call of an operator: named tensors and values, as the host gave them. Sources of the pack
// (SIZE of q dim 2 ...) are evaluated against it. Plain CPU code; knows no driver.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "aotbuild/aotbuild.h"
#include "pack.h"

namespace aotbuild {

struct NamedTensor {
  std::string_view name;
  const aotbuild_tensor* tensor;  // null when absent
};

struct NamedValue {
  std::string_view name;
  bool is_real;
  int64_t integer;
  double real;
};

class Call {
 public:
  void add(std::string_view name, const aotbuild_tensor* tensor);
  void add(std::string_view name, int64_t value);
  void add(std::string_view name, double value);

  const std::vector<NamedTensor>& tensors() const { return tensors_; }
  const std::vector<NamedValue>& values() const { return values_; }
  const aotbuild_tensor* tensor(std::string_view name) const;  // null when absent
  const NamedValue* value(std::string_view name) const;        // null when not given

  // Device of the tensors; throws INVALID_ARGUMENT when there is none or they disagree.
  struct Device {
    int32_t type;
    int32_t id;
  };
  Device device() const;

  // Integer value of a source. Throws CONTRACT when the call has no such name.
  int64_t integer(format::SourceKind kind, std::string_view name, int dim) const;

 private:
  std::vector<NamedTensor> tensors_;
  std::vector<NamedValue> values_;
};

// Stride of `dim` in elements, also when strides is null (compact row-major).
int64_t stride_of(const aotbuild_tensor& tensor, int dim);
// Address of the first element: data + byte_offset.
uint64_t address_of(const aotbuild_tensor& tensor);
// Bytes from the first element to the end of the furthest one; 0 for an empty tensor, and
// UINT64_MAX if a stride is negative or the sum overflows.
uint64_t extent_of(const aotbuild_tensor& tensor);

// Checks the call against the operator's declared tensors: all there, no unknown tensor or
// value, rank, dtype, last dimension contiguous, sizes and strides >= 0, data not null unless the
// tensor is empty. Throws INVALID_ARGUMENT naming the tensor, the value seen and what is expected.
void validate_call(const Pack& pack, const format::Operator& op, const Call& call);

}  // namespace aotbuild
