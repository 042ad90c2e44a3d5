// Whether an image may be used for a call: what it was compiled to rely on, and types' ranges.
#include <algorithm>
#include <string_view>

#include "dispatch.h"
#include "text.h"

namespace aotbuild {
namespace {

using format::SourceKind;

// Sets *why, if there is one, and returns false. `text` is only made when it is wanted.
template <class Text>
bool broken(std::string* why, Text text) {
  if (why != nullptr) {
    *why += text();
  }
  return false;
}

struct IntegerRange {
  int64_t low, high;
};

// Values an integer argument can take, as far as a call can pass them (int64).
IntegerRange range_of(format::Type type) {
  switch (type) {
    case format::Type::kI1:
      return {0, 1};
    case format::Type::kI8:
      return {INT8_MIN, INT8_MAX};
    case format::Type::kI16:
      return {INT16_MIN, INT16_MAX};
    case format::Type::kI32:
      return {INT32_MIN, INT32_MAX};
    case format::Type::kU8:
      return {0, UINT8_MAX};
    case format::Type::kU16:
      return {0, UINT16_MAX};
    case format::Type::kU32:
      return {0, UINT32_MAX};
    case format::Type::kU64:
      return {0, INT64_MAX};
    default:
      return {INT64_MIN, INT64_MAX};
  }
}

bool integer_holds(const format::Argument& argument, const std::string_view name, int64_t value,
                   std::string* why) {
  const IntegerRange range = range_of(argument.type);
  if (value < range.low || value > range.high) {
    return broken(why, [&] {
      return "argument " + quoted(name) + " is " + std::to_string(value) + ", its type takes " +
             std::to_string(range.low) + ".." + std::to_string(range.high);
    });
  }
  if (value % static_cast<int64_t>(argument.divisibility) != 0) {
    return broken(why, [&] {
      return "argument " + quoted(name) + " is " + std::to_string(value) + ", not a multiple of " +
             std::to_string(argument.divisibility);
    });
  }
  return true;
}

bool pointer_holds(const Pack& pack, const format::Argument& argument, const Call& call,
                   std::string* why) {
  const std::string_view name = pack.string(argument.source_name);
  const auto address =
      static_cast<uint64_t>(call.integer(SourceKind::kPointer, name, argument.source_dim));
  if (address % argument.divisibility != 0) {
    return broken(why, [&] {
      return "address of tensor " + quoted(name) + " is " + std::to_string(address) +
             ", not a multiple of " + std::to_string(argument.divisibility) + " bytes";
    });
  }
  const aotbuild_tensor* tensor = call.tensor(name);
  constexpr uint64_t kRange32 = 1ULL << 31;
  if ((argument.flags & format::kRange32) != 0 && tensor != nullptr &&
      extent_of(*tensor) >= kRange32) {
    return broken(why, [&] {
      return "tensor " + quoted(name) + " spans " + std::to_string(extent_of(*tensor)) +
             " bytes, not less than 2^31";
    });
  }
  return true;
}

// Strides of whole 16 bytes, counted in bits as elements can be smaller than a byte.
bool is_aligned_stride(int64_t stride, uint8_t element_bits) {
  constexpr int64_t kBits = 128;
  return stride % kBits * element_bits % kBits == 0;
}

bool descriptor_holds(const Pack& pack, const format::Descriptor& descriptor, const Call& call,
                      std::string* why) {
  const std::string_view name = pack.string(descriptor.tensor);
  const auto fails = [&](const char* what) {
    return broken(why, [&] { return "tensor " + quoted(name) + " of a descriptor " + what; });
  };
  // Also says so when the call knows no such tensor.
  if (call.integer(SourceKind::kPresent, name, 0) == 0) {
    return fails("is absent");
  }
  const aotbuild_tensor& tensor = *call.tensor(name);
  if (address_of(tensor) % 16 != 0) {
    return fails("does not start at a multiple of 16 bytes");
  }
  if (extent_of(tensor) == 0) {
    return fails("is empty");
  }
  for (int dim = 0; dim + 1 < tensor.ndim; ++dim) {
    if (!is_aligned_stride(stride_of(tensor, dim), tensor.dtype.bits)) {
      return fails("has a stride that is not a multiple of 16 bytes");
    }
  }
  return stride_of(tensor, tensor.ndim - 1) == 1 ||
         fails("has a last dimension that is not contiguous");
}

bool is_real(format::Type type) {
  return type == format::Type::kFp16 || type == format::Type::kBf16 ||
         type == format::Type::kFp32 || type == format::Type::kFp64;
}

// Arguments of real types take any number, integer arguments only integers.
bool number_holds(const Pack& pack, const format::Argument& argument, const Call& call,
                  std::string* why) {
  const std::string_view source = pack.string(argument.source_name);
  if (is_real(argument.type) && argument.source_kind == SourceKind::kValue) {
    const NamedValue* given = call.value(source);
    if (given != nullptr && given->is_real) {
      return true;
    }
  }
  const int64_t value = argument.source_kind == SourceKind::kConstant
                            ? argument.constant
                            : call.integer(argument.source_kind, source, argument.source_dim);
  return is_real(argument.type) || integer_holds(argument, pack.string(argument.name), value, why);
}

bool argument_holds(const Pack& pack, const format::Argument& argument, const Call& call,
                    std::string* why) {
  switch (argument.type) {
    case format::Type::kPointer:
      return argument.source_kind != SourceKind::kPointer ||
             pointer_holds(pack, argument, call, why);
    case format::Type::kDescriptor:
      return descriptor_holds(pack, pack.descriptors()[static_cast<size_t>(argument.constant)],
                              call, why);
    default:
      return number_holds(pack, argument, call, why);
  }
}

}  // namespace

bool promises_hold(const Pack& pack, const format::Image& image, const Call& call,
                   std::string* why) {
  const auto arguments = pack.arguments(image);
  return std::all_of(arguments.begin(), arguments.end(), [&](const format::Argument& argument) {
    return argument_holds(pack, argument, call, why);
  });
}

}  // namespace aotbuild
