// Packs with one thing wrong, and what the reader has to say about it.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "expect_error.h"
#include "pack.h"
#include "pack_builder.h"

namespace aotbuild::test {

using Bytes = std::vector<uint8_t>;

inline std::unique_ptr<const Pack> open_bytes(const Bytes& bytes) {
  return Pack::from_memory(bytes.data(), bytes.size(), "dir/bad.aotpack");
}

inline format::Header& header(Bytes& bytes) {
  return *reinterpret_cast<format::Header*>(bytes.data());
}

inline void corrupt(const Bytes& bytes, std::initializer_list<std::string> pieces) {
  expect_error(AOTBUILD_ERROR_PACK_CORRUPT, {"dir/bad.aotpack: "}, [&] { open_bytes(bytes); });
  expect_error(AOTBUILD_ERROR_PACK_CORRUPT, pieces, [&] { open_bytes(bytes); });
}

// A sample pack with one thing wrong in its records; the hash is right.
inline void corrupt(const std::function<void(PackBuilder&)>& spoil,
                    std::initializer_list<std::string> pieces) {
  PackBuilder builder = sample_pack();
  spoil(builder);
  corrupt(builder.build(), pieces);
}

// The same, in the header.
inline void corrupt_header(const std::function<void(format::Header&)>& spoil,
                           std::initializer_list<std::string> pieces) {
  Bytes bytes = sample_pack().build();
  spoil(header(bytes));
  seal(bytes);
  corrupt(bytes, pieces);
}

}  // namespace aotbuild::test
