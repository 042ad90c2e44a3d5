// float16 and bfloat16 by their bits, rounded to nearest even.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

inline uint32_t bits_of(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float float_of(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline float from_bfloat16(uint16_t bits) { return float_of(uint32_t{bits} << 16); }

inline uint16_t to_bfloat16(float value) {
  const uint32_t bits = bits_of(value);
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

inline float from_float16(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000U} << 16;
  const uint32_t exponent = (half >> 10) & 0x1F;
  const uint32_t fraction = half & 0x3FF;
  if (exponent == 0x1F) return float_of(sign | 0x7F800000U | fraction << 13);
  if (exponent != 0) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
  const float value = std::ldexp(static_cast<float>(fraction), -24);
  return sign != 0 ? -value : value;
}

// For finite values of magnitude below 65504.
inline uint16_t to_float16(float value) {
  const auto sign = static_cast<uint16_t>((bits_of(value) >> 16) & 0x8000);
  const float size = std::fabs(value);
  if (size < 0x1p-14F) return sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(size, 24)));
  const uint32_t bits = bits_of(size);
  return sign | static_cast<uint16_t>((bits + 0xFFF + ((bits >> 13) & 1) - (112U << 23)) >> 13);
}
