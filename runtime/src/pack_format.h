// Records of the pack format, version 1, as they lie in the file. docs/pack-format.md is the
// specification; each struct here is one of its tables.
#pragma once

#include <cstdint>

namespace aotbuild::format {

inline constexpr char kMagic[8] = {'A', 'O', 'T', 'P', 'A', 'C', 'K', '\0'};
inline constexpr uint32_t kVersion = 1;
inline constexpr uint32_t kNone = 0xFFFFFFFFU;
inline constexpr uint64_t kMaxRawSize = 1ULL << 30;

enum Table : uint32_t {
  kStrings,
  kOperators,
  kTensors,
  kColumns,
  kValues,
  kRows,
  kImages,
  kArguments,
  kDescriptors,
  kFactors,
  kBlobs,
  kMeta,
  kTableCount
};

enum class Vendor : uint32_t { kCuda = 1, kHip = 2 };

enum class SourceKind : uint8_t {
  kConstant,
  kPointer,
  kSize,
  kStride,
  kValue,
  kDtype,
  kDescriptor,
  kPresent,
  kGlobalScratch,
  kProfileScratch
};

enum class Mode : uint8_t { kEqual, kAtLeast, kAtMost, kSlack };

enum class Type : uint8_t {
  kPointer = 1,
  kI1,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kFp16,
  kBf16,
  kFp32,
  kFp64,
  kDescriptor
};

enum TensorFlags : uint8_t { kOptional = 1, kContiguousLast = 2, kWritten = 4 };
enum ImageFlags : uint32_t { kCooperative = 1, kProgrammatic = 2 };
enum ArgumentFlags : uint8_t { kRange32 = 1 };
enum DescriptorFlags : uint8_t { kFp4Padded = 1, kNanFill = 2, kRoundToTf32 = 4 };
enum class DescriptorForm : uint8_t { kTensorMap = 1, kTdm = 2 };

struct Directory {
  uint64_t offset;
  uint32_t count;
  uint32_t record_size;
};

struct Header {
  char magic[8];
  uint32_t format_version;
  uint32_t header_size;
  uint64_t file_size;
  uint64_t index_size;
  uint8_t pack_id[32];
  uint32_t arch;
  uint32_t family;
  uint32_t producer;
  uint32_t vendor;
  uint32_t tier;
  uint32_t warp_size;
  uint64_t reserved;
  Directory tables[kTableCount];
};
static_assert(sizeof(Header) == 288, "pack header");

struct Operator {
  uint32_t name;
  uint32_t contract;
  uint32_t first_tensor;
  uint32_t tensor_count;
  uint32_t first_column;
  uint32_t column_count;
  uint32_t first_row;
  uint32_t row_count;
  uint64_t first_value;
  uint64_t reserved;
};
static_assert(sizeof(Operator) == 48, "operators");

struct Tensor {
  uint32_t name;
  uint8_t rank;
  uint8_t flags;
  uint16_t dtype;
  uint32_t same_dtype_as;
  uint8_t reserved[12];
};
static_assert(sizeof(Tensor) == 24, "tensors");

struct Column {
  uint32_t name;
  Mode mode;
  uint8_t role;
  SourceKind source_kind;
  uint8_t source_dim;
  uint32_t source_name;
  uint32_t reference;
  uint8_t reserved[16];
};
static_assert(sizeof(Column) == 32, "columns");

struct Row {
  uint32_t image;
  uint32_t reason;
};
static_assert(sizeof(Row) == 8, "rows");

struct Image {
  uint32_t name;
  uint32_t blob;
  uint32_t symbol;
  uint32_t options;
  uint32_t first_argument;
  uint32_t argument_count;
  uint32_t first_factor;
  uint32_t factor_count;
  uint32_t shared;
  uint32_t threads;
  uint32_t num_ctas;
  uint32_t cluster[3];
  uint32_t flags;
  uint32_t grid_cap;
  uint64_t global_scratch;
  uint64_t profile_scratch;
  uint32_t global_scratch_align;
  uint32_t profile_scratch_align;
  uint32_t registers;
  uint32_t spills;
  uint8_t reserved[32];
};
static_assert(sizeof(Image) == 128, "images");

struct Argument {
  uint32_t name;
  Type type;
  SourceKind source_kind;
  uint8_t source_dim;
  uint8_t flags;
  uint32_t source_name;
  uint32_t divisibility;
  int64_t constant;
  uint64_t reserved;
};
static_assert(sizeof(Argument) == 32, "arguments");

struct Descriptor {
  uint32_t tensor;
  DescriptorForm form;
  uint8_t rank;
  uint8_t element_type;
  uint8_t element_bits;
  uint8_t swizzle;
  uint8_t flags;
  uint16_t warps;
  uint32_t box[5];
  uint32_t pad_interval;
  uint32_t pad_amount;
  uint8_t reserved[24];
};
static_assert(sizeof(Descriptor) == 64, "descriptors");

struct Factor {
  uint8_t axis;
  SourceKind source_kind;
  uint8_t source_dim;
  uint8_t reserved0;
  uint32_t source_name;
  uint32_t divisor;
  uint32_t reserved1;
};
static_assert(sizeof(Factor) == 16, "factors");

struct Blob {
  uint64_t offset;
  uint64_t size;
  uint64_t raw_size;
  uint8_t sha256[32];
  uint64_t reserved;
};
static_assert(sizeof(Blob) == 64, "blobs");

}  // namespace aotbuild::format
