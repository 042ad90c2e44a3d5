#include "tdm.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "call.h"
#include "error.h"

namespace aotbuild {
namespace {

constexpr int kMaxRank = 5;
constexpr size_t kWords = 20;
constexpr size_t kSmallBytes = 48;  // groups 0 and 1
constexpr size_t kFullBytes = 80;   // and groups 2 and 3

// A descriptor is a row of bit fields that cross word borders.
class Bits {
 public:
  void put(unsigned position, unsigned width, uint64_t value) {
    value &= (uint64_t{1} << width) - 1;
    while (value != 0) {
      words_[position / 32] |= static_cast<uint32_t>(value << position % 32);
      value >>= 32 - position % 32;
      position += 32 - position % 32;
    }
  }
  const uint32_t* words() const { return words_; }

 private:
  uint32_t words_[kWords] = {};
};

unsigned floor_log2(uint32_t value) {
  unsigned result = 0;
  while (value > 1) {
    value >>= 1;
    ++result;
  }
  return result;
}

// Each warp moves its share of the box. Warps, a power of two, are dealt to the dimensions from
// the outermost on, as many to each as it has rows for; with one dimension, all to it.
void warp_box(const format::Descriptor& descriptor, uint32_t* box) {
  uint32_t left = std::max<uint32_t>(descriptor.warps, 1);
  for (int i = 0; i < descriptor.rank; ++i) {
    uint32_t warps = 1;
    if (descriptor.rank == 1) warps = left;
    while (descriptor.rank > 1 && left > 1 && warps * 2 <= descriptor.box[i]) {
      warps *= 2;
      left /= 2;
    }
    box[i] = (descriptor.box[i] + warps - 1) / warps;
  }
}

uint32_t size_field(const aotbuild_tensor& tensor, int dim) {
  const int64_t size = tensor.shape[dim];
  if (size < 0 || size > int64_t{UINT32_MAX}) {
    throw Error(AOTBUILD_ERROR_UNSUPPORTED, "a tensor has size " + std::to_string(size) +
                                                " in dimension " + std::to_string(dim) +
                                                "; a tensor descriptor holds 32 bits");
  }
  return static_cast<uint32_t>(size);
}

uint64_t stride_field(const aotbuild_tensor& tensor, int dim) {
  const int64_t stride = stride_of(tensor, dim);
  if (stride < 0 || stride >= int64_t{1} << 48) {
    throw Error(AOTBUILD_ERROR_UNSUPPORTED, "a tensor has stride " + std::to_string(stride) +
                                                " in dimension " + std::to_string(dim) +
                                                "; a tensor descriptor holds 48 bits");
  }
  return static_cast<uint64_t>(stride);
}

// Where size, box and stride of the dimensions lie, innermost first, in bits. The innermost stride
// is 1 and has no place.
struct Place {
  unsigned size, box, stride;
};
constexpr Place kPlaces[kMaxRank] = {
    {176, 240, 0}, {208, 256, 288}, {384, 272, 336}, {416, 496, 448}, {560, 592, 512}};
constexpr unsigned kNoStride = 0;

void put_padding(const format::Descriptor& descriptor, Bits* bits) {
  const uint32_t interval = descriptor.pad_interval * descriptor.element_bits / 32;  // dwords
  const uint32_t amount = descriptor.pad_amount * descriptor.element_bits / 32;
  if (interval == 0 || amount == 0) return;
  bits->put(148, 1, 1);
  bits->put(150, 3, floor_log2(interval) - 1);
  bits->put(153, 7, amount - 1);
}

}  // namespace

size_t encode_tdm(const format::Descriptor& descriptor, const aotbuild_tensor& tensor,
                  void* bytes) {
  uint32_t box[kMaxRank] = {};
  warp_box(descriptor, box);
  Bits bits;
  bits.put(0, 1, 1);  // predicate: on, for kernels that do not set it
  bits.put(64, 63, address_of(tensor));
  bits.put(127, 1, 1);
  bits.put(144, 2, floor_log2(descriptor.element_bits / 8U));
  put_padding(descriptor, &bits);
  for (int i = 0; i < descriptor.rank; ++i) {
    const int dim = descriptor.rank - 1 - i;
    bits.put(kPlaces[i].size, 32, size_field(tensor, dim));
    bits.put(kPlaces[i].box, 16, box[dim]);
    if (kPlaces[i].stride != kNoStride) bits.put(kPlaces[i].stride, 48, stride_field(tensor, dim));
  }
  const size_t size = descriptor.rank <= 2 ? kSmallBytes : kFullBytes;
  std::memcpy(bytes, bits.words(), size);
  return size;
}

}  // namespace aotbuild
