#include "arguments.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "error.h"
#include "text.h"

namespace aotbuild {
namespace {

using format::SourceKind;
using format::Type;

[[noreturn]] void throw_range(const Pack& pack, const format::Argument& argument,
                              const std::string& value, const std::string& type) {
  throw Error(AOTBUILD_ERROR_INVALID_ARGUMENT,
              "kernel parameter " + quoted(pack.string(argument.name)) + " would be " + value +
                  ", which does not fit its type " + type);
}

template <class T>
uint64_t narrow(const Pack& pack, const format::Argument& argument, int64_t value,
                const char* type) {
  // u64 takes the bits of an i64, as sizes and addresses come.
  if constexpr (sizeof(T) < sizeof(int64_t)) {
    if (value < int64_t{std::numeric_limits<T>::min()} ||
        value > int64_t{std::numeric_limits<T>::max()}) {
      throw_range(pack, argument, std::to_string(value), type);
    }
  }
  const T narrowed = static_cast<T>(value);
  uint64_t slot = 0;
  std::memcpy(&slot, &narrowed, sizeof(narrowed));
  return slot;
}

int64_t integer_of(const format::Argument& argument, const Pack& pack, const Call& call) {
  if (argument.source_kind == SourceKind::kConstant) return argument.constant;
  return call.integer(argument.source_kind, pack.string(argument.source_name), argument.source_dim);
}

double real_of(const format::Argument& argument, const Pack& pack, const Call& call) {
  if (argument.source_kind == SourceKind::kValue) {
    const NamedValue* given = call.value(pack.string(argument.source_name));
    if (given != nullptr && given->is_real) return given->real;
  }
  return static_cast<double>(integer_of(argument, pack, call));
}

uint64_t small_float(const format::Argument& argument, const Pack& pack, double value,
                     int exponent_bits, int mantissa_bits, const char* type) {
  const uint16_t bits = round_to_small_float(value, exponent_bits, mantissa_bits);
  const uint16_t infinity =
      round_to_small_float(std::numeric_limits<double>::infinity(), exponent_bits, mantissa_bits);
  if (std::isfinite(value) && (bits & 0x7FFFU) >= infinity) {
    throw_range(pack, argument, std::to_string(value), type);
  }
  return bits;
}

uint64_t float_bits(const format::Argument& argument, const Pack& pack, double value) {
  // IEEE conversion: what is beyond the largest float by half a unit or more becomes infinite.
  const auto narrowed = static_cast<float>(value);
  if (std::isfinite(value) && !std::isfinite(narrowed)) {
    throw_range(pack, argument, std::to_string(value), "fp32");
  }
  uint64_t slot = 0;
  std::memcpy(&slot, &narrowed, sizeof(narrowed));
  return slot;
}

uint64_t double_bits(double value) {
  uint64_t slot = 0;
  std::memcpy(&slot, &value, sizeof(value));
  return slot;
}

// The argument's bytes, little-endian in a slot of 8.
uint64_t scalar(const Pack& pack, const format::Argument& argument, const Call& call) {
  switch (argument.type) {
    case Type::kFp16:
      return small_float(argument, pack, real_of(argument, pack, call), 5, 10, "fp16");
    case Type::kBf16:
      return small_float(argument, pack, real_of(argument, pack, call), 8, 7, "bf16");
    case Type::kFp32:
      return float_bits(argument, pack, real_of(argument, pack, call));
    case Type::kFp64:
      return double_bits(real_of(argument, pack, call));
    default:
      break;
  }
  const int64_t value = integer_of(argument, pack, call);
  switch (argument.type) {
    case Type::kI1:
      if (value != 0 && value != 1) throw_range(pack, argument, std::to_string(value), "i1");
      return static_cast<uint64_t>(value);
    case Type::kI8:
      return narrow<int8_t>(pack, argument, value, "i8");
    case Type::kI16:
      return narrow<int16_t>(pack, argument, value, "i16");
    case Type::kI32:
      return narrow<int32_t>(pack, argument, value, "i32");
    case Type::kU8:
      return narrow<uint8_t>(pack, argument, value, "u8");
    case Type::kU16:
      return narrow<uint16_t>(pack, argument, value, "u16");
    case Type::kU32:
      return narrow<uint32_t>(pack, argument, value, "u32");
    default:  // pointers and 64-bit integers
      return static_cast<uint64_t>(value);
  }
}

}  // namespace

Arguments::Arguments(const Pack& pack, const format::Image& image, const Call& call,
                     const Scratch& scratch, Driver& driver) {
  const Span<format::Argument> declared = pack.arguments(image);
  if (declared.size() > kMaxArguments) {
    throw Error(AOTBUILD_ERROR_UNSUPPORTED, "image " + std::string(pack.string(image.name)) +
                                                " takes " + std::to_string(declared.size()) +
                                                " arguments; this runtime passes at most " +
                                                std::to_string(kMaxArguments));
  }
  for (size_t i = 0; i < declared.size(); ++i) {
    const format::Argument& argument = declared[i];
    pointers_[i] = &scalars_[i];
    switch (argument.source_kind) {
      case SourceKind::kDescriptor:
        pointers_[i] = add_descriptor(pack, argument, call, driver);
        break;
      case SourceKind::kGlobalScratch:
        scalars_[i] = scratch.global;
        break;
      case SourceKind::kProfileScratch:
        scalars_[i] = scratch.profile;
        break;
      default:
        scalars_[i] = scalar(pack, argument, call);
    }
  }
}

void* Arguments::add_descriptor(const Pack& pack, const format::Argument& argument,
                                const Call& call, Driver& driver) {
  if (descriptor_count_ == kMaxDescriptors) {
    throw Error(AOTBUILD_ERROR_UNSUPPORTED,
                "an image takes more than " + std::to_string(kMaxDescriptors) +
                    " tensor descriptors, the most that this runtime passes");
  }
  const format::Descriptor& descriptor = pack.descriptors()[static_cast<size_t>(argument.constant)];
  const std::string_view name = pack.string(descriptor.tensor);
  const aotbuild_tensor* tensor = call.tensor(name);
  if (tensor == nullptr || tensor->ndim != descriptor.rank) {
    throw Error(AOTBUILD_ERROR_CONTRACT, "kernel parameter " + quoted(pack.string(argument.name)) +
                                             " describes a tensor " + quoted(name) + " of rank " +
                                             std::to_string(descriptor.rank) +
                                             ", which the call does not pass");
  }
  void* bytes = descriptors_[descriptor_count_++];
  driver.encode(descriptor, *tensor, bytes);
  return bytes;
}

uint16_t round_to_small_float(double value, int exponent_bits, int mantissa_bits) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const uint32_t infinity = ((1U << exponent_bits) - 1) << mantissa_bits;
  if (std::isnan(value)) return static_cast<uint16_t>(sign | infinity | 1U << (mantissa_bits - 1));
  if (value == 0) return sign;
  const int min_exponent = 2 - (1 << (exponent_bits - 1));
  const int max_exponent = 1 - min_exponent;
  int exponent = 0;
  std::frexp(value, &exponent);
  exponent = std::max(exponent - 1, min_exponent);
  if (std::isinf(value) || exponent > max_exponent) return static_cast<uint16_t>(sign | infinity);
  // Counted in units of the last place, a carry into the next exponent comes out right by itself.
  const double units = std::nearbyint(std::ldexp(std::fabs(value), mantissa_bits - exponent));
  const uint32_t bits = (static_cast<uint32_t>(exponent - min_exponent) << mantissa_bits) +
                        static_cast<uint32_t>(units);
  return static_cast<uint16_t>(sign | bits);
}

}  // namespace aotbuild
