// An opened pack: the mapped file, validated once, read in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pack_format.h"

namespace aotbuild {

// A table of records inside the mapped index.
template <class T>
class Span {
 public:
  Span() = default;
  Span(const T* data, size_t size) : data_(data), size_(size) {}
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T& operator[](size_t i) const { return data_[i]; }
  Span sub(size_t first, size_t count) const { return Span(data_ + first, count); }

 private:
  const T* data_ = nullptr;
  size_t size_ = 0;
};

class Pack {
 public:
  // Maps and validates the file. Throws Error: IO, PACK_CORRUPT (with offset and what was
  // expected), PACK_VERSION. The message names the path.
  static std::unique_ptr<const Pack> open(const std::string& path);
  // The same over bytes in memory, which must outlive the pack; `name` stands for the path.
  static std::unique_ptr<const Pack> from_memory(const uint8_t* data, size_t size,
                                                 std::string name);
  ~Pack();
  Pack(const Pack&) = delete;
  Pack& operator=(const Pack&) = delete;

  const std::string& path() const { return path_; }
  const format::Header& header() const { return *header_; }
  std::string_view arch() const { return string(header_->arch); }
  std::string_view family() const { return string(header_->family); }
  format::Vendor vendor() const { return static_cast<format::Vendor>(header_->vendor); }

  // A string of the pool. Only for offsets read from this pack, which open() has checked.
  std::string_view string(uint32_t offset) const { return strings_ + offset; }

  Span<format::Operator> operators() const { return operators_; }
  const format::Operator* find_operator(std::string_view name) const;  // null when absent
  Span<format::Tensor> tensors(const format::Operator& op) const {
    return tensors_.sub(op.first_tensor, op.tensor_count);
  }
  Span<format::Column> columns(const format::Operator& op) const {
    return columns_.sub(op.first_column, op.column_count);
  }
  Span<format::Row> rows(const format::Operator& op) const {
    return rows_.sub(op.first_row, op.row_count);
  }
  // Dispatch values of an operator, row-major: row_count x column_count.
  Span<int64_t> values(const format::Operator& op) const {
    return values_.sub(op.first_value, size_t{op.row_count} * op.column_count);
  }
  Span<format::Image> images() const { return images_; }
  Span<format::Argument> arguments(const format::Image& image) const {
    return arguments_.sub(image.first_argument, image.argument_count);
  }
  Span<format::Factor> factors(const format::Image& image) const {
    return factors_.sub(image.first_factor, image.factor_count);
  }
  Span<format::Descriptor> descriptors() const { return descriptors_; }

  // Decompresses one image's code object and checks its size, SHA-256 and ELF arch.
  // Throws Error: PACK_CORRUPT, PACK_ARCH, OUT_OF_MEMORY.
  std::vector<uint8_t> inflate(const format::Image& image) const;

 private:
  Pack() = default;
  void validate();

  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
  bool mapped_ = false;
  const format::Header* header_ = nullptr;
  const char* strings_ = nullptr;
  Span<format::Operator> operators_;
  Span<format::Tensor> tensors_;
  Span<format::Column> columns_;
  Span<int64_t> values_;
  Span<format::Row> rows_;
  Span<format::Image> images_;
  Span<format::Argument> arguments_;
  Span<format::Descriptor> descriptors_;
  Span<format::Factor> factors_;
  Span<format::Blob> blobs_;
};

}  // namespace aotbuild
