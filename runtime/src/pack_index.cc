#include "pack_index.h"

#include <array>
#include <cstring>

#include "error.h"
#include "sha256.h"
#include "text.h"

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "packs are read in place");
static_assert(sizeof(size_t) == 8, "offsets of packs are 64 bit");

namespace aotbuild {
namespace {

using format::Directory;
using format::Header;

struct TableShape {
  std::string_view name;
  uint32_t record_size;
};

// In the order of format::Table.
constexpr std::array<TableShape, format::kTableCount> kShapes = {{
    {"strings", 1},
    {"operators", sizeof(format::Operator)},
    {"tensors", sizeof(format::Tensor)},
    {"columns", sizeof(format::Column)},
    {"values", sizeof(int64_t)},
    {"rows", sizeof(format::Row)},
    {"images", sizeof(format::Image)},
    {"arguments", sizeof(format::Argument)},
    {"descriptors", sizeof(format::Descriptor)},
    {"factors", sizeof(format::Factor)},
    {"blobs", sizeof(format::Blob)},
    {"meta", 1},
}};

constexpr size_t kTableAlignment = 8;
constexpr size_t kVersionEnd = offsetof(Header, header_size);

template <class T>
Span<T> table(const Index& index, format::Table which) {
  const Directory& entry = index.header->tables[which];
  return Span<T>(reinterpret_cast<const T*>(index.data + entry.offset), entry.count);
}

// Magic, version and sizes: enough to say what kind of file it is, before anything is believed.
void check_file(const uint8_t* data, size_t size, const std::string& path) {
  if (size < kVersionEnd) {
    fail_corrupt(path, "truncated: " + std::to_string(size) + " bytes, the header alone takes " +
                           std::to_string(sizeof(Header)));
  }
  if (std::memcmp(data, format::kMagic, sizeof(format::kMagic)) != 0) {
    fail_corrupt(path, "not a pack: the first 8 bytes are " + hex(data, sizeof(format::kMagic)) +
                           ", expected \"AOTPACK\" and a NUL");
  }
  uint32_t version;
  std::memcpy(&version, data + offsetof(Header, format_version), sizeof(version));
  if (version != format::kVersion) {
    throw Error(AOTBUILD_ERROR_PACK_VERSION,
                path + ": pack format version " + std::to_string(version) +
                    ", this runtime reads version " + std::to_string(format::kVersion) +
                    "; use a pack and a runtime of the same release");
  }
  if (size < sizeof(Header)) {
    fail_corrupt(path, "truncated: " + std::to_string(size) + " bytes, the header alone takes " +
                           std::to_string(sizeof(Header)));
  }
  const auto& header = *reinterpret_cast<const Header*>(data);
  if (header.file_size != size) {
    fail_corrupt(path, (size < header.file_size ? "truncated: " : "trailing bytes: ") +
                           std::to_string(size) + " bytes, header.file_size says " +
                           std::to_string(header.file_size));
  }
}

void check_pack_id(const Index& index) {
  const Header& header = *index.header;
  constexpr size_t kIdEnd = offsetof(Header, pack_id) + sizeof(header.pack_id);
  static constexpr std::array<uint8_t, sizeof(header.pack_id)> kZeros = {};
  Sha256 hash;
  hash.update(index.data, offsetof(Header, pack_id));
  hash.update(kZeros.data(), kZeros.size());
  hash.update(index.data + kIdEnd, header.index_size - kIdEnd);
  const Digest digest = hash.finish();
  if (std::memcmp(digest.data(), header.pack_id, digest.size()) != 0) {
    fail_corrupt(index.path, "index damaged: header.pack_id is " +
                                 hex(header.pack_id, sizeof(header.pack_id)) +
                                 ", the index hashes to " + hex(digest.data(), digest.size()));
  }
}

// Tables fill the index, one after the other, each padded with zeros to a multiple of 8.
void check_directory(const Index& index) {
  const Record header(index);
  const uint64_t index_size = index.header->index_size;
  uint64_t next = sizeof(Header);
  for (size_t i = 0; i < kShapes.size(); ++i) {
    const Directory& entry = index.header->tables[i];
    const std::string field = "tables[" + std::string(kShapes[i].name) + "]";
    header.equal((field + ".record_size").c_str(), entry.record_size, kShapes[i].record_size);
    header.equal((field + ".offset").c_str(), entry.offset, next);
    header.in_range((field + ".count").c_str(), entry.count, 0,
                    (index_size - next) / entry.record_size);
    const uint64_t end = next + uint64_t{entry.count} * entry.record_size;
    next = (end + kTableAlignment - 1) / kTableAlignment * kTableAlignment;
    header.in_range((field + " end with padding").c_str(), next, 0, index_size);
    header.zero(index.data + end, next - end);
  }
  header.equal("index_size", index_size, next);
}

void check_strings(const Index& index) {
  const auto bad = [&index](size_t at, const std::string& expected) {
    const uint64_t offset = index.header->tables[format::kStrings].offset + at;
    fail_corrupt(index.path, "strings at offset " + std::to_string(offset) + ": byte " +
                                 std::to_string(static_cast<uint8_t>(index.strings[at])) +
                                 ", expected " + expected);
  };
  if (index.strings.empty()) {
    fail_corrupt(index.path, "strings: table is empty, expected at least the empty string");
  }
  if (index.strings[0] != '\0') {
    bad(0, "a NUL: string 0 is the empty string");
  }
  for (size_t i = 0; i < index.strings.size(); ++i) {
    const char c = index.strings[i];
    if (c != '\0' && (c < ' ' || c > '~')) {
      bad(i, "printable ASCII or NUL");
    }
  }
  if (index.strings[index.strings.size() - 1] != '\0') {
    bad(index.strings.size() - 1, "a NUL at the end of the pool");
  }
}

void check_header(const Index& index) {
  const Header& header = *index.header;
  const Record record(index);
  record.text("arch", header.arch);
  record.text("family", header.family);
  record.text("producer", header.producer);
  record.in_range("vendor", header.vendor, 1, 2);
  record.in_range("tier", header.tier, 0, 2);
  if (header.warp_size != 32 && header.warp_size != 64) {
    record.fail("warp_size", std::to_string(header.warp_size), "32 or 64");
  }
  record.zero(&header.reserved, sizeof(header.reserved));
}

}  // namespace

Index locate_index(const uint8_t* data, size_t size, const std::string& path) {
  check_file(data, size, path);
  Index index(path);
  index.data = data;
  index.header = reinterpret_cast<const Header*>(data);
  const Record header(index);
  header.equal("header_size", index.header->header_size, sizeof(Header));
  header.in_range("index_size", index.header->index_size, sizeof(Header), size);
  check_pack_id(index);
  check_directory(index);
  index.strings = table<char>(index, format::kStrings);
  index.operators = table<format::Operator>(index, format::kOperators);
  index.tensors = table<format::Tensor>(index, format::kTensors);
  index.columns = table<format::Column>(index, format::kColumns);
  index.values = table<int64_t>(index, format::kValues);
  index.rows = table<format::Row>(index, format::kRows);
  index.images = table<format::Image>(index, format::kImages);
  index.arguments = table<format::Argument>(index, format::kArguments);
  index.descriptors = table<format::Descriptor>(index, format::kDescriptors);
  index.factors = table<format::Factor>(index, format::kFactors);
  index.blobs = table<format::Blob>(index, format::kBlobs);
  check_strings(index);
  check_header(index);
  return index;
}

void fail_corrupt(const std::string& path, const std::string& what) {
  throw Error(AOTBUILD_ERROR_PACK_CORRUPT,
              path + ": " + what + "; the pack is corrupt, build or fetch it again");
}

Record::Record(const Index& index) : index_(index) {}

Record::Record(const Index& index, format::Table table, size_t number)
    : index_(index),
      table_(kShapes[table].name),
      number_(number),
      offset_(index.header->tables[table].offset + number * kShapes[table].record_size) {}

void Record::fail(const char* field, const std::string& seen, const std::string& expected) const {
  const std::string record =
      table_.empty() ? "header" : std::string(table_) + "[" + std::to_string(number_) + "]";
  fail_corrupt(index_.path, record + " at offset " + std::to_string(offset_) + ": " + field +
                                " is " + seen + ", expected " + expected);
}

void Record::in_range(const char* field, uint64_t seen, uint64_t low, uint64_t high) const {
  if (seen < low || seen > high) {
    fail(field, std::to_string(seen), std::to_string(low) + ".." + std::to_string(high));
  }
}

void Record::equal(const char* field, uint64_t seen, uint64_t expected) const {
  if (seen != expected) {
    fail(field, std::to_string(seen), std::to_string(expected));
  }
}

void Record::only_bits(const char* field, uint64_t seen, uint64_t known) const {
  if ((seen & ~known) != 0) {
    fail(field, std::to_string(seen), "only bits of " + std::to_string(known));
  }
}

void Record::zero(const void* reserved, size_t size) const {
  const auto* bytes = static_cast<const uint8_t*>(reserved);
  for (size_t i = 0; i < size; ++i) {
    if (bytes[i] != 0) {
      fail("reserved", hex(bytes, size), "zeros");
    }
  }
}

void Record::text_or_empty(const char* field, uint32_t offset) const {
  const Span<char>& pool = index_.strings;
  if (offset >= pool.size()) {
    fail(field, "string " + std::to_string(offset),
         "below the pool's size " + std::to_string(pool.size()));
  }
  if (offset > 0 && pool[offset - 1] != '\0') {
    fail(field, "string " + std::to_string(offset), "the start of a string, not its middle");
  }
}

void Record::text(const char* field, uint32_t offset) const {
  text_or_empty(field, offset);
  if (index_.strings[offset] == '\0') {
    fail(field, "empty", "a string");
  }
}

void Record::number(const char* field, uint64_t seen, uint64_t size) const {
  if (seen >= size) {
    fail(field, std::to_string(seen), "below " + std::to_string(size));
  }
}

void Record::part(const char* field, uint64_t first, uint64_t count, uint64_t size) const {
  if (first > size || count > size - first) {
    fail(field, std::to_string(count) + " from " + std::to_string(first),
         "inside its table of " + std::to_string(size));
  }
}

void Record::after(const char* field, std::string_view before, std::string_view name) const {
  if (before >= name) {
    fail(field, quoted(name), "to sort after the one before, " + quoted(before));
  }
}

}  // namespace aotbuild
