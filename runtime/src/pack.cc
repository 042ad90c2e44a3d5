#include "pack.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

#include "elf.h"
#include "error.h"
#include "pack_index.h"
#include "sha256.h"

namespace aotbuild {
namespace {

[[noreturn]] void fail_io(const std::string& path, const char* action) {
  const int number = errno;
  throw Error(AOTBUILD_ERROR_IO, path + ": cannot " + action +
                                     " the pack: " + std::generic_category().message(number) +
                                     " (errno " + std::to_string(number) + ")");
}

class File {
 public:
  // O_NONBLOCK: a FIFO in the place of a pack must not hang the host; it is refused by size().
  explicit File(const std::string& path)
      : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (descriptor_ < 0) {
      fail_io(path_, "open");
    }
  }
  ~File() { ::close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  size_t size() const {
    struct stat status;
    if (::fstat(descriptor_, &status) != 0) {
      fail_io(path_, "stat");
    }
    if (!S_ISREG(status.st_mode)) {
      throw Error(AOTBUILD_ERROR_IO, path_ + ": not a regular file; expected a pack");
    }
    return static_cast<size_t>(status.st_size);
  }
  const uint8_t* map(size_t size) const {
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor_, 0);
    if (address == MAP_FAILED) {
      fail_io(path_, "map");
    }
    return static_cast<const uint8_t*>(address);
  }

 private:
  const std::string& path_;
  int descriptor_;
};

}  // namespace

std::unique_ptr<const Pack> Pack::open(const std::string& path) {
  std::unique_ptr<Pack> pack(new Pack());
  pack->path_ = path;
  const File file(path);
  pack->size_ = file.size();
  if (pack->size_ > 0) {  // nothing of a file without bytes can be mapped
    pack->data_ = file.map(pack->size_);
    pack->mapped_ = true;
  }
  pack->validate();
  return pack;
}

std::unique_ptr<const Pack> Pack::from_memory(const uint8_t* data, size_t size, std::string name) {
  if (reinterpret_cast<uintptr_t>(data) % alignof(format::Header) != 0) {
    throw Error(AOTBUILD_ERROR_INVALID_ARGUMENT,
                name + ": a pack in memory must be aligned to 8 bytes, as it is read in place");
  }
  std::unique_ptr<Pack> pack(new Pack());
  pack->path_ = std::move(name);
  pack->data_ = data;
  pack->size_ = size;
  pack->validate();
  return pack;
}

Pack::~Pack() {
  if (mapped_) {
    ::munmap(const_cast<uint8_t*>(data_), size_);
  }
}

void Pack::validate() {
  const Index index = locate_index(data_, size_, path_);
  check_records(index);
  check_links(index);
  header_ = index.header;
  strings_ = index.strings.begin();
  operators_ = index.operators;
  tensors_ = index.tensors;
  columns_ = index.columns;
  values_ = index.values;
  rows_ = index.rows;
  images_ = index.images;
  arguments_ = index.arguments;
  descriptors_ = index.descriptors;
  factors_ = index.factors;
  blobs_ = index.blobs;
}

const format::Operator* Pack::find_operator(std::string_view name) const {
  const auto* found = std::lower_bound(operators_.begin(), operators_.end(), name,
                                       [this](const format::Operator& op, std::string_view wanted) {
                                         return string(op.name) < wanted;
                                       });
  return found != operators_.end() && string(found->name) == name ? found : nullptr;
}

std::vector<uint8_t> Pack::inflate(const format::Image& image) const {
  const format::Blob& blob = blobs_[image.blob];
  const uint8_t* frame = data_ + blob.offset;
  const std::string context = path_ + ": image '" + std::string(string(image.name)) +
                              "', blob at offset " + std::to_string(blob.offset);
  const auto check = [&context](const char* what, uint64_t seen, uint64_t expected) {
    if (seen != expected) {
      fail_corrupt(context, std::string(what) + " is " + std::to_string(seen) + ", expected " +
                                std::to_string(expected));
    }
  };
  const auto check_zstd = [&context](size_t result) {
    if (ZSTD_isError(result) != 0) {
      fail_corrupt(context, std::string("zstd: ") + ZSTD_getErrorName(result));
    }
    return result;
  };
  const size_t length = check_zstd(ZSTD_findFrameCompressedSize(frame, blob.size));
  check("length of the zstd frame", length, blob.size);
  // A frame that declares no size gives a huge number here.
  check("content size of the zstd frame", ZSTD_getFrameContentSize(frame, blob.size),
        blob.raw_size);
  std::vector<uint8_t> code;
  try {
    code.resize(blob.raw_size);
  } catch (const std::bad_alloc&) {
    throw Error(AOTBUILD_ERROR_OUT_OF_MEMORY, context + ": no memory for the code object, " +
                                                  std::to_string(blob.raw_size) + " bytes");
  }
  const size_t written = check_zstd(ZSTD_decompress(code.data(), code.size(), frame, blob.size));
  check("decompressed size", written, blob.raw_size);
  const Digest digest = sha256(code.data(), code.size());
  if (std::memcmp(digest.data(), blob.sha256, digest.size()) != 0) {
    fail_corrupt(context, "SHA-256 is " + hex(digest.data(), digest.size()) + ", expected " +
                              hex(blob.sha256, sizeof(blob.sha256)));
  }
  check_elf(code.data(), code.size(), vendor(), arch(), context);
  return code;
}

}  // namespace aotbuild
