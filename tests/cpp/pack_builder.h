// Packs for tests, made in memory from records. What a test wants to be wrong it changes in the
// records before build(), or in the bytes after it, followed by seal() where the change is meant
// to lie behind the hash.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "aotbuild/aotbuild.h"
#include "pack_format.h"

namespace aotbuild::test {

struct PackBuilder {
  std::string arch = "sm_90";
  std::string family = "test";
  std::string producer = "aotbuild test";
  format::Vendor vendor = format::Vendor::kCuda;
  uint32_t tier = 0;
  uint32_t warp_size = 32;
  std::string strings = std::string(1, '\0');
  std::vector<format::Operator> operators;
  std::vector<format::Tensor> tensors;
  std::vector<format::Column> columns;
  std::vector<int64_t> values;
  std::vector<format::Row> rows;
  std::vector<format::Image> images;
  std::vector<format::Argument> arguments;
  std::vector<format::Descriptor> descriptors;
  std::vector<format::Factor> factors;
  std::vector<std::vector<uint8_t>> codes;  // blob i before sorting; build() renumbers images
  std::string meta = "{}";

  // Offset of a string in the pool, which gets it if it is not there.
  uint32_t text(std::string_view string);

  void add_tensor(std::string_view name, uint8_t rank, uint8_t flags, uint16_t dtype,
                  uint32_t same_dtype_as = format::kNone);
  void add_column(std::string_view name, format::Mode mode, format::SourceKind kind,
                  std::string_view source, uint8_t dim = 0);
  void add_slack(std::string_view name, uint32_t reference);
  void add_row(const std::vector<int64_t>& values, uint32_t image, std::string_view reason = "");
  // Arguments and factors added afterwards are the image's; its blob is `code`.
  void add_image(std::string_view name, std::vector<uint8_t> code);
  format::Argument& add_argument(std::string_view name, format::Type type, format::SourceKind kind,
                                 std::string_view source = "", uint8_t dim = 0,
                                 uint32_t divisibility = 1);
  void add_factor(uint8_t axis, format::SourceKind kind, std::string_view source, uint8_t dim,
                  uint32_t divisor);
  // An operator of all tensors, columns and rows that no operator before it has.
  void add_operator(std::string_view name, uint32_t contract = 1);

  std::vector<uint8_t> build() const;
};

// Makes pack_id right again after a change of the index.
void seal(std::vector<uint8_t>& bytes);

// A header that passes for a code object of the arch, followed by `payload`.
std::vector<uint8_t> fake_code(format::Vendor vendor, uint32_t number, std::string_view payload);

// Operator "forward" of tensors x (rank 2), out (rank 2, of x's dtype) and mask (rank 1, optional),
// with values "fast" and "scale"; columns of every mode, images with every kind of promise:
//
//   row  dtype    width  fast  padded  image
//   0    float16  64     1     0       "a_descriptor"  x by tensor map
//   1    float16  64     0     1       "b_aligned"     x: 16 bytes and below 2 GiB, width by 8
//   2    float16  128    0     1       "c_general"     no promise
//   3    float32  128    0     1       none: "wrong numbers"
PackBuilder sample_pack();

inline constexpr uint16_t kFloat16 = 2 | 16 << 8;
inline constexpr uint16_t kFloat32 = 2 | 32 << 8;

// A tensor that owns its shape and strides. Its data is an address that nothing reads.
class FakeTensor {
 public:
  FakeTensor(std::vector<int64_t> shape, uint16_t dtype, uint64_t address = 0x10000);
  FakeTensor(const FakeTensor&) = delete;
  FakeTensor& operator=(const FakeTensor&) = delete;

  void set_strides(std::vector<int64_t> strides);
  aotbuild_tensor* operator->() { return &tensor_; }
  const aotbuild_tensor& operator*() const { return tensor_; }
  const aotbuild_tensor* get() const { return &tensor_; }

 private:
  std::vector<int64_t> shape_;
  std::vector<int64_t> strides_;
  aotbuild_tensor tensor_ = {};
};

}  // namespace aotbuild::test
