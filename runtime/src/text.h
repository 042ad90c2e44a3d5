// Words of error messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace aotbuild {

inline std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

// A type as packs and sources number it, DLPack's code | bits << 8: "float16".
inline std::string dtype_text(int64_t dtype) {
  static constexpr std::string_view kKinds[] = {"int", "uint", "float", "handle", "bfloat"};
  const auto code = static_cast<uint64_t>(dtype) & 0xFFU;
  if (code >= 5) {
    return "DLPack type " + std::to_string(dtype);
  }
  return std::string(kKinds[code]) + std::to_string(dtype >> 8);
}

}  // namespace aotbuild
