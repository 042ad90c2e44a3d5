// Memory of the GPU that the program was built for; no more of a vendor's toolkit is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

#if defined(CPP_HOST_CUDA)
#include <cuda_runtime_api.h>
#define GPU(name) cuda##name
#elif defined(CPP_HOST_HIP)
#include <hip/hip_runtime_api.h>
#define GPU(name) hip##name
#endif

#ifdef GPU

#ifdef CPP_HOST_CUDA
inline constexpr int32_t kDeviceType = 2;  // DLPack's kDLCUDA
#else
inline constexpr int32_t kDeviceType = 10;  // DLPack's kDLROCM
#endif

inline void check(GPU(Error_t) error, const char* what) {
  if (error != GPU(Success)) {
    throw std::runtime_error(std::string(what) + ": " + GPU(GetErrorString)(error));
  }
}

class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t size) : size_(size) {
    if (size != 0) check(GPU(Malloc)(&data_, size), "allocating device memory");
  }
  ~DeviceBuffer() { static_cast<void>(GPU(Free)(data_)); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  void* data() const { return data_; }
  void write(const void* from) {
    if (size_ != 0) check(GPU(Memcpy)(data_, from, size_, GPU(MemcpyHostToDevice)), "copying in");
  }
  void read(void* to) const {
    if (size_ != 0) check(GPU(Memcpy)(to, data_, size_, GPU(MemcpyDeviceToHost)), "copying out");
  }

 private:
  void* data_ = nullptr;
  size_t size_;
};

class Stream {
 public:
  Stream() { check(GPU(StreamCreate)(&stream_), "making a stream"); }
  ~Stream() { static_cast<void>(GPU(StreamDestroy)(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void* get() const { return stream_; }
  void synchronize() const { check(GPU(StreamSynchronize)(stream_), "waiting for the kernel"); }

 private:
  GPU(Stream_t) stream_ = nullptr;
};

#endif  // GPU
