#include "pack_builder.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "sha256.h"

namespace aotbuild::test {
namespace {

using format::SourceKind;
using format::Type;

std::vector<uint8_t> compress(const std::vector<uint8_t>& code) {
  std::vector<uint8_t> frame(ZSTD_compressBound(code.size()));
  const size_t size = ZSTD_compress(frame.data(), frame.size(), code.data(), code.size(), 3);
  if (ZSTD_isError(size) != 0) {
    throw std::runtime_error(ZSTD_getErrorName(size));
  }
  frame.resize(size);
  return frame;
}

// Bytes of the index, table by table.
class Writer {
 public:
  Writer() : bytes_(sizeof(format::Header)) {}

  void table(const void* records, size_t count, size_t record_size) {
    directory_.push_back(
        {bytes_.size(), static_cast<uint32_t>(count), static_cast<uint32_t>(record_size)});
    const auto* begin = static_cast<const uint8_t*>(records);
    bytes_.insert(bytes_.end(), begin, begin + count * record_size);
    bytes_.resize((bytes_.size() + 7) / 8 * 8);
  }
  template <class T>
  void table(const std::vector<T>& records) {
    table(records.data(), records.size(), sizeof(T));
  }
  size_t size() const { return bytes_.size(); }
  std::vector<uint8_t> take(format::Header header) {
    std::copy(directory_.begin(), directory_.end(), header.tables);
    std::memcpy(bytes_.data(), &header, sizeof(header));
    return std::move(bytes_);
  }

 private:
  std::vector<uint8_t> bytes_;
  std::vector<format::Directory> directory_;
};

struct Blobs {
  std::vector<format::Blob> records;  // offsets count from the first blob
  std::vector<uint8_t> frames;
  std::vector<uint32_t> index_of;  // of each code
};

Blobs make_blobs(const std::vector<std::vector<uint8_t>>& codes) {
  std::vector<std::pair<Digest, uint32_t>> order;
  order.reserve(codes.size());
  for (uint32_t i = 0; i < codes.size(); ++i) {
    order.emplace_back(sha256(codes[i].data(), codes[i].size()), i);
  }
  std::sort(order.begin(), order.end());
  Blobs blobs;
  blobs.index_of.resize(codes.size());
  for (const auto& [digest, code] : order) {
    const std::vector<uint8_t> frame = compress(codes[code]);
    format::Blob record = {};
    record.offset = blobs.frames.size();
    record.size = frame.size();
    record.raw_size = codes[code].size();
    std::copy(digest.begin(), digest.end(), record.sha256);
    blobs.index_of[code] = static_cast<uint32_t>(blobs.records.size());
    blobs.records.push_back(record);
    blobs.frames.insert(blobs.frames.end(), frame.begin(), frame.end());
  }
  return blobs;
}

}  // namespace

uint32_t PackBuilder::text(std::string_view string) {
  const std::string entry = std::string(1, '\0') + std::string(string) + '\0';
  if (string.empty()) {
    return 0;
  }
  const size_t found = strings.find(entry);
  if (found != std::string::npos) {
    return static_cast<uint32_t>(found + 1);
  }
  const auto offset = static_cast<uint32_t>(strings.size());
  strings += std::string(string) + '\0';
  return offset;
}

void PackBuilder::add_tensor(std::string_view name, uint8_t rank, uint8_t flags, uint16_t dtype,
                             uint32_t same_dtype_as) {
  tensors.push_back({text(name), rank, flags, dtype, same_dtype_as, {}});
}

void PackBuilder::add_column(std::string_view name, format::Mode mode, SourceKind kind,
                             std::string_view source, uint8_t dim) {
  columns.push_back({text(name), mode, 0, kind, dim, text(source), format::kNone, {}});
}

void PackBuilder::add_slack(std::string_view name, uint32_t reference) {
  columns.push_back(
      {text(name), format::Mode::kSlack, 0, SourceKind::kConstant, 0, 0, reference, {}});
}

void PackBuilder::add_row(const std::vector<int64_t>& row, uint32_t image,
                          std::string_view reason) {
  values.insert(values.end(), row.begin(), row.end());
  rows.push_back({image, text(reason)});
}

void PackBuilder::add_image(std::string_view name, std::vector<uint8_t> code) {
  format::Image image = {};
  image.name = text(name);
  image.blob = static_cast<uint32_t>(codes.size());
  image.symbol = text("kernel");
  image.options = text("{}");
  image.first_argument = static_cast<uint32_t>(arguments.size());
  image.first_factor = static_cast<uint32_t>(factors.size());
  image.threads = 128;
  image.num_ctas = 1;
  std::fill(std::begin(image.cluster), std::end(image.cluster), 1);
  image.global_scratch_align = 1;
  image.profile_scratch_align = 1;
  images.push_back(image);
  codes.push_back(std::move(code));
}

format::Argument& PackBuilder::add_argument(std::string_view name, Type type, SourceKind kind,
                                            std::string_view source, uint8_t dim,
                                            uint32_t divisibility) {
  arguments.push_back({text(name), type, kind, dim, 0, text(source), divisibility, 0, 0});
  ++images.back().argument_count;
  return arguments.back();
}

void PackBuilder::add_factor(uint8_t axis, SourceKind kind, std::string_view source, uint8_t dim,
                             uint32_t divisor) {
  factors.push_back({axis, kind, dim, 0, text(source), divisor, 0});
  ++images.back().factor_count;
}

void PackBuilder::add_operator(std::string_view name, uint32_t contract) {
  format::Operator op = {};
  if (!operators.empty()) {
    const format::Operator& before = operators.back();
    op.first_tensor = before.first_tensor + before.tensor_count;
    op.first_column = before.first_column + before.column_count;
    op.first_row = before.first_row + before.row_count;
    op.first_value = before.first_value + uint64_t{before.row_count} * before.column_count;
  }
  op.name = text(name);
  op.contract = contract;
  op.tensor_count = static_cast<uint32_t>(tensors.size()) - op.first_tensor;
  op.column_count = static_cast<uint32_t>(columns.size()) - op.first_column;
  op.row_count = static_cast<uint32_t>(rows.size()) - op.first_row;
  operators.push_back(op);
}

std::vector<uint8_t> PackBuilder::build() const {
  PackBuilder all = *this;
  format::Header header = {};
  std::copy(std::begin(format::kMagic), std::end(format::kMagic), header.magic);
  header.format_version = format::kVersion;
  header.header_size = sizeof(header);
  header.arch = all.text(arch);
  header.family = all.text(family);
  header.producer = all.text(producer);
  header.vendor = static_cast<uint32_t>(vendor);
  header.tier = tier;
  header.warp_size = warp_size;

  Blobs blobs = make_blobs(codes);
  for (format::Image& image : all.images) {
    if (image.blob < blobs.index_of.size()) {  // a test may want it out of range
      image.blob = blobs.index_of[image.blob];
    }
  }
  Writer writer;
  writer.table(all.strings.data(), all.strings.size(), 1);
  writer.table(all.operators);
  writer.table(all.tensors);
  writer.table(all.columns);
  writer.table(all.values);
  writer.table(all.rows);
  writer.table(all.images);
  writer.table(all.arguments);
  writer.table(all.descriptors);
  writer.table(all.factors);
  header.index_size =
      writer.size() + blobs.records.size() * sizeof(format::Blob) + (all.meta.size() + 7) / 8 * 8;
  for (format::Blob& blob : blobs.records) {
    blob.offset += header.index_size;
  }
  writer.table(blobs.records);
  writer.table(all.meta.data(), all.meta.size(), 1);
  header.file_size = header.index_size + blobs.frames.size();
  std::vector<uint8_t> bytes = writer.take(header);
  bytes.insert(bytes.end(), blobs.frames.begin(), blobs.frames.end());
  seal(bytes);
  return bytes;
}

void seal(std::vector<uint8_t>& bytes) {
  if (bytes.size() < sizeof(format::Header)) {
    return;
  }
  uint64_t index_size;
  std::memcpy(&index_size, bytes.data() + offsetof(format::Header, index_size), sizeof(index_size));
  uint8_t* id = bytes.data() + offsetof(format::Header, pack_id);
  std::memset(id, 0, sizeof(Digest));
  const Digest digest = sha256(bytes.data(), std::min<uint64_t>(index_size, bytes.size()));
  std::memcpy(id, digest.data(), digest.size());
}

std::vector<uint8_t> fake_code(format::Vendor vendor, uint32_t number, std::string_view payload) {
  constexpr size_t kHeaderSize = 64;
  std::vector<uint8_t> code(kHeaderSize + payload.size());
  const uint8_t ident[] = {0x7F, 'E', 'L', 'F', 2, 1, 1, 65, 8};
  std::copy(std::begin(ident), std::end(ident), code.begin());
  const bool cuda = vendor == format::Vendor::kCuda;
  const uint16_t machine = cuda ? 190 : 224;
  const uint32_t flags = cuda ? number << 8 : number;
  std::memcpy(code.data() + 18, &machine, sizeof(machine));
  std::memcpy(code.data() + 48, &flags, sizeof(flags));
  std::copy(payload.begin(), payload.end(), code.begin() + kHeaderSize);
  return code;
}

namespace {

void add_sample_arguments(PackBuilder& pack, uint32_t divisibility) {
  pack.add_argument("out", Type::kPointer, SourceKind::kPointer, "out", 0, divisibility);
  pack.add_argument("mask", Type::kPointer, SourceKind::kPointer, "mask");
  pack.add_argument("stride", Type::kI64, SourceKind::kStride, "x", 0);
  pack.add_argument("height", Type::kI32, SourceKind::kSize, "x", 0);
  pack.add_argument("width", Type::kI32, SourceKind::kSize, "x", 1, divisibility > 1 ? 8 : 1);
  pack.add_argument("has_mask", Type::kI1, SourceKind::kPresent, "mask");
  pack.add_argument("scale", Type::kFp32, SourceKind::kValue, "scale");
  pack.add_argument("global_scratch", Type::kPointer, SourceKind::kGlobalScratch);
  pack.add_argument("profile_scratch", Type::kPointer, SourceKind::kProfileScratch);
  pack.add_factor(0, SourceKind::kSize, "x", 0, 64);
  pack.add_factor(0, SourceKind::kSize, "x", 1, 32);
}

}  // namespace

PackBuilder sample_pack() {
  PackBuilder pack;
  pack.add_tensor("x", 2, format::kContiguousLast, 0);
  pack.add_tensor("out", 2, format::kContiguousLast | format::kWritten, 0, 0);
  pack.add_tensor("mask", 1, format::kOptional, kFloat32);
  pack.add_column("dtype", format::Mode::kEqual, SourceKind::kDtype, "x");
  pack.add_column("width", format::Mode::kAtLeast, SourceKind::kSize, "x", 1);
  pack.add_column("fast", format::Mode::kAtMost, SourceKind::kValue, "fast");
  pack.add_slack("padded", 1);
  pack.add_row({kFloat16, 64, 1, 0}, 0);
  pack.add_row({kFloat16, 64, 0, 1}, 1);
  pack.add_row({kFloat16, 128, 0, 1}, 2);
  pack.add_row({kFloat32, 128, 0, 1}, format::kNone, "wrong numbers");
  pack.add_operator("forward");

  pack.add_image("a_descriptor", fake_code(pack.vendor, 90, "by tensor map"));
  pack.descriptors.push_back(
      {pack.text("x"), format::DescriptorForm::kTensorMap, 2, 8, 16, 3, 0, 0, {64, 64}, 0, 0, {}});
  pack.add_argument("x", Type::kDescriptor, SourceKind::kDescriptor);
  add_sample_arguments(pack, 16);
  pack.add_image("b_aligned", fake_code(pack.vendor, 90, "aligned"));
  pack.add_argument("x", Type::kPointer, SourceKind::kPointer, "x", 0, 16).flags = format::kRange32;
  add_sample_arguments(pack, 16);
  pack.add_image("c_general", fake_code(pack.vendor, 90, "general"));
  pack.add_argument("x", Type::kPointer, SourceKind::kPointer, "x");
  add_sample_arguments(pack, 1);
  return pack;
}

FakeTensor::FakeTensor(std::vector<int64_t> shape, uint16_t dtype, uint64_t address)
    : shape_(std::move(shape)) {
  tensor_.data = reinterpret_cast<void*>(address);
  tensor_.device.device_type = 2;
  tensor_.ndim = static_cast<int32_t>(shape_.size());
  tensor_.dtype.code = static_cast<uint8_t>(dtype & 0xFF);
  tensor_.dtype.bits = static_cast<uint8_t>(dtype >> 8);
  tensor_.dtype.lanes = 1;
  tensor_.shape = shape_.data();
}

void FakeTensor::set_strides(std::vector<int64_t> strides) {
  strides_ = std::move(strides);
  tensor_.strides = strides_.data();
}

}  // namespace aotbuild::test
