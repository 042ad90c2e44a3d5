// Tensors lent by DLPack capsules. The capsule is neither renamed nor consumed: it stays the
// owner, its destructor frees it, and it must outlive the loan.
#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "aotbuild/aotbuild.h"

namespace aotbuild::bindings {

// What a "dltensor_versioned" capsule points at (DLManagedTensorVersioned of DLPack 1.x). That of
// a "dltensor" capsule starts with its DLTensor.
struct VersionedTensor {
  uint32_t major;
  uint32_t minor;
  void* context;
  void (*deleter)(VersionedTensor*);
  uint64_t flags;
  aotbuild_tensor tensor;
};
inline constexpr uint32_t kMajorVersion = 1;
inline constexpr uint64_t kReadOnly = 1;

enum class Access { kRead, kWrite };

// The tensor inside a capsule. Throws std::invalid_argument (ValueError in Python) that names the
// argument when it is not a capsule of DLPack, of a version with another layout, or read-only
// where it would be written.
inline const aotbuild_tensor* borrow(PyObject* object, const std::string& name, Access access) {
  if (PyCapsule_IsValid(object, "dltensor") != 0) {
    return static_cast<const aotbuild_tensor*>(PyCapsule_GetPointer(object, "dltensor"));
  }
  if (PyCapsule_IsValid(object, "dltensor_versioned") == 0) {
    throw std::invalid_argument(name +
                                ": expected an unused DLPack capsule, named \"dltensor\" or "
                                "\"dltensor_versioned\"");
  }
  const auto* managed =
      static_cast<const VersionedTensor*>(PyCapsule_GetPointer(object, "dltensor_versioned"));
  if (managed->major != kMajorVersion) {
    throw std::invalid_argument(name + ": its DLPack version is " + std::to_string(managed->major) +
                                ", expected " + std::to_string(kMajorVersion));
  }
  if (access == Access::kWrite && (managed->flags & kReadOnly) != 0) {
    throw std::invalid_argument(name +
                                ": the tensor is read-only and would be written; pass a "
                                "writable one");
  }
  return &managed->tensor;
}

}  // namespace aotbuild::bindings
