// One random call of attention, its inputs, and what it should give.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

enum class Dtype { kFloat16, kBfloat16, kFloat32 };

struct DtypeFacts {
  const char* name;
  uint8_t code;  // DLPack's
  size_t bytes;
  double tolerance;  // of the relative error
};
const DtypeFacts& facts_of(Dtype dtype);

// A tensor in a host buffer: shape and strides in elements; the last dimension is contiguous.
struct HostTensor {
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  std::vector<uint8_t> bytes;

  // Index of an element in the buffer; trailing dimensions left out are 0.
  int64_t at(int64_t a, int64_t b, int64_t c, int64_t d = 0) const;
  double get(int64_t index) const;
  void set(int64_t index, double value);
};

struct Case {
  HostTensor q, k, v, out, lse;
  double scale = 0;
  int64_t window_left = 0, window_right = 0;
  int32_t align = 0;
  const char* mask = "";

  std::string describe() const;
};

// Outputs, and what lies between their rows, are filled with NaNs.
Case random_case(std::mt19937_64& random);

struct Errors {
  double out = 0;  // |out - expected| / |expected|, Euclidean norms
  double lse = 0;
  std::string fault;  // what is wrong apart from rounding, "" if nothing
};

// Compares a case's outputs with attention computed here in double precision.
Errors check_case(const Case& c);
