#include "sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace aotbuild {
namespace {

std::string hashed(const std::string& message) {
  const Digest digest = sha256(message.data(), message.size());
  return hex(digest.data(), digest.size());
}

// NIST, "SHA-256 examples" and the FIPS 180-2 appendix.
TEST(Sha256, PublishedVectors) {
  EXPECT_EQ(hashed(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hashed("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hashed("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(
      hashed("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopq"
             "klmnopqrlmnopqrsmnopqrstnopqrstu"),
      "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(hashed(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Every length around the padding's edges, in pieces that straddle blocks, against one piece.
TEST(Sha256, PiecesGiveTheSameDigest) {
  for (size_t size = 0; size <= 200; ++size) {
    std::string message(size, '\0');
    for (size_t i = 0; i < size; ++i) {
      message[i] = static_cast<char>(i * 7 + size);
    }
    for (const size_t piece : {1, 7, 63, 64, 65}) {
      Sha256 hash;
      for (size_t at = 0; at < size; at += piece) {
        const std::string part = message.substr(at, piece);
        hash.update(part.data(), part.size());
      }
      const Digest digest = hash.finish();
      ASSERT_EQ(hex(digest.data(), digest.size()), hashed(message)) << size << " by " << piece;
    }
  }
}

TEST(Sha256, HexKeepsLeadingZeros) {
  const uint8_t bytes[] = {0x00, 0x0a, 0xff};
  EXPECT_EQ(hex(bytes, sizeof(bytes)), "000aff");
}

}  // namespace
}  // namespace aotbuild
