// Reading and checking the index of a pack, once, when it is opened. After locate_index(),
// check_records() and check_links() have returned, no accessor of Pack can leave the index,
// whatever the file holds. All of them throw Error: PACK_CORRUPT or PACK_VERSION.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "pack.h"

namespace aotbuild {

// The tables of an index where they lie in memory.
struct Index {
  explicit Index(const std::string& file) : path(file) {}

  const std::string& path;  // for messages
  const uint8_t* data = nullptr;
  const format::Header* header = nullptr;
  Span<char> strings;
  Span<format::Operator> operators;
  Span<format::Tensor> tensors;
  Span<format::Column> columns;
  Span<int64_t> values;
  Span<format::Row> rows;
  Span<format::Image> images;
  Span<format::Argument> arguments;
  Span<format::Descriptor> descriptors;
  Span<format::Factor> factors;
  Span<format::Blob> blobs;

  std::string_view string(uint32_t offset) const { return strings.begin() + offset; }
};

// Header, directory, pack_id and string pool.
Index locate_index(const uint8_t* data, size_t size, const std::string& path);
// Each record by itself: ranges, enumerations, reserved bytes, order.
void check_records(const Index& index);
// What records say of each other: sources against the operator's tensors, images against the
// operators that use them, order of dispatch rows.
void check_links(const Index& index);

// Throws PACK_CORRUPT: "<path>: <what>; <remedy>".
[[noreturn]] void fail_corrupt(const std::string& path, const std::string& what);

// One record under check; its methods throw with the record's place, the value seen and the value
// expected. The header counts as a record of its own.
class Record {
 public:
  explicit Record(const Index& index);  // the header
  Record(const Index& index, format::Table table, size_t number);

  [[noreturn]] void fail(const char* field, const std::string& seen,
                         const std::string& expected) const;
  void in_range(const char* field, uint64_t seen, uint64_t low, uint64_t high) const;
  void equal(const char* field, uint64_t seen, uint64_t expected) const;
  void only_bits(const char* field, uint64_t seen, uint64_t known) const;
  void zero(const void* reserved, size_t size) const;
  // An offset into the string pool that names a string; all strings but some may be empty.
  void text(const char* field, uint32_t offset) const;
  void text_or_empty(const char* field, uint32_t offset) const;
  // A number of a record in a table of `size` records.
  void number(const char* field, uint64_t seen, uint64_t size) const;
  // `count` records from `first` lie in a table of `size` records.
  void part(const char* field, uint64_t first, uint64_t count, uint64_t size) const;
  // A table is strictly ascending: `before` < `name`.
  void after(const char* field, std::string_view before, std::string_view name) const;

 private:
  const Index& index_;
  std::string_view table_;
  size_t number_ = 0;
  uint64_t offset_ = 0;
};

}  // namespace aotbuild
