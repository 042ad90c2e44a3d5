#include "case.h"

#include <aotbuild/aotbuild.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "float_types.h"

namespace {

constexpr uint8_t kPoison = 0xFF;  // bytes of a NaN in all three types
constexpr int64_t kHeadDimMax = 256;

class Dice {
 public:
  explicit Dice(std::mt19937_64& random) : random_(random) {}
  int64_t between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  template <size_t N>
  int64_t one_of(const std::array<int64_t, N>& values) {
    return values[static_cast<size_t>(between(0, N - 1))];
  }
  double normal() { return normal_(random_); }

 private:
  std::mt19937_64& random_;
  std::normal_distribution<double> normal_;
};

int64_t elements(const HostTensor& tensor) {
  int64_t last = 0;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] == 0) return 0;
    last += (tensor.shape[i] - 1) * tensor.strides[i];
  }
  return last + 1;
}

// Lays a tensor out with heads before or after the sequence, and gaps between rows and heads.
HostTensor lay_out(Dice& dice, Dtype dtype, std::vector<int64_t> shape) {
  HostTensor tensor;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  const int64_t heads = tensor.shape[1];
  const int64_t seqlen = tensor.shape[2];
  const int64_t row = tensor.shape[3] + dice.one_of<4>({0, 0, 8, 3});
  const int64_t gap = dice.one_of<3>({0, 0, 5});
  if (dice.between(0, 1) == 0) {
    const int64_t head = seqlen * row + gap;
    tensor.strides = {heads * head, head, row, 1};
  } else {
    const int64_t position = heads * row + gap;
    tensor.strides = {seqlen * position, row, position, 1};
  }
  tensor.bytes.assign(static_cast<size_t>(elements(tensor)) * facts_of(dtype).bytes, kPoison);
  return tensor;
}

template <class F>
void for_each(const HostTensor& tensor, F&& function) {
  const std::vector<int64_t>& shape = tensor.shape;
  const int64_t last = shape.size() > 3 ? shape[3] : 1;
  for (int64_t a = 0; a < shape[0]; ++a)
    for (int64_t b = 0; b < shape[1]; ++b)
      for (int64_t c = 0; c < shape[2]; ++c)
        for (int64_t d = 0; d < last; ++d) function(tensor.at(a, b, c, d));
}

void choose_mask(Dice& dice, Case& c) {
  c.window_left = c.window_right = AOTBUILD_UNLIMITED;
  c.mask = "full";
  const int64_t kind = dice.between(0, 3);
  if (kind == 0) return;
  c.window_right = 0;
  c.align = kind == 1 ? AOTBUILD_ALIGN_UPPER_LEFT : AOTBUILD_ALIGN_LOWER_RIGHT;
  c.mask = kind == 1 ? "causal upper-left" : "causal lower-right";
  if (kind == 3) {
    c.window_left = dice.between(0, 80);
    c.window_right = dice.between(0, 80);
    c.mask = "window lower-right";
  }
}

// Keys that query i sees: [low, high).
struct Range {
  int64_t low, high;
};

Range visible(const Case& c, int64_t i) {
  const int64_t seqlen_k = c.k.shape[2];
  const bool shifted = c.align == AOTBUILD_ALIGN_LOWER_RIGHT;
  const int64_t position = i + (shifted ? seqlen_k - c.q.shape[2] : 0);
  Range range{0, seqlen_k};
  if (c.window_left != AOTBUILD_UNLIMITED)
    range.low = std::max<int64_t>(0, position - c.window_left);
  if (c.window_right != AOTBUILD_UNLIMITED) {
    range.high = std::min(seqlen_k, position + c.window_right + 1);
  }
  return range;
}

std::vector<double> load(const HostTensor& tensor, int64_t batch, int64_t head) {
  std::vector<double> values;
  values.reserve(static_cast<size_t>(tensor.shape[2] * tensor.shape[3]));
  for (int64_t s = 0; s < tensor.shape[2]; ++s)
    for (int64_t d = 0; d < tensor.shape[3]; ++d)
      values.push_back(tensor.get(tensor.at(batch, head, s, d)));
  return values;
}

// One row: writes the expected output to `out`, returns the expected LSE.
double attend(const Case& c, const double* q, const std::vector<double>& k,
              const std::vector<double>& v, Range keys, std::vector<double>& out) {
  const int64_t head_dim = c.q.shape[3];
  std::fill(out.begin(), out.end(), 0.0);
  std::vector<double> scores;
  double top = -std::numeric_limits<double>::infinity();
  for (int64_t j = keys.low; j < keys.high; ++j) {
    double dot = 0;
    for (int64_t d = 0; d < head_dim; ++d) dot += q[d] * k[j * head_dim + d];
    scores.push_back(dot * c.scale);
    top = std::max(top, scores.back());
  }
  double sum = 0;
  for (int64_t j = keys.low; j < keys.high; ++j) {
    const double weight = std::exp(scores[j - keys.low] - top);
    sum += weight;
    for (int64_t d = 0; d < head_dim; ++d) out[d] += weight * v[j * head_dim + d];
  }
  if (sum == 0) return top;
  for (double& value : out) value /= sum;
  return top + std::log(sum);
}

// Squared norms of differences and of what is expected.
struct Norms {
  double difference = 0, expected = 0;
  void add(double got, double want) {
    difference += (got - want) * (got - want);
    expected += want * want;
  }
  double relative() const {
    if (difference == 0) return 0;
    return std::sqrt(difference / std::max(expected, std::numeric_limits<double>::min()));
  }
};

void compare_head(const Case& c, int64_t batch, int64_t head, Norms& out, Norms& lse,
                  std::string& fault) {
  const int64_t head_k = head / (c.q.shape[1] / c.k.shape[1]);
  const int64_t head_dim = c.q.shape[3];
  const std::vector<double> q = load(c.q, batch, head);
  const std::vector<double> k = load(c.k, batch, head_k);
  const std::vector<double> v = load(c.v, batch, head_k);
  std::vector<double> row(static_cast<size_t>(head_dim));
  for (int64_t i = 0; i < c.q.shape[2]; ++i) {
    const double want = attend(c, &q[i * head_dim], k, v, visible(c, i), row);
    for (int64_t d = 0; d < head_dim; ++d) out.add(c.out.get(c.out.at(batch, head, i, d)), row[d]);
    const double got = c.lse.get(c.lse.at(batch, head, i));
    if (std::isinf(want) || std::isinf(got)) {
      if (got != want)
        fault = "lse of a row is " + std::to_string(got) + ", expected " + std::to_string(want);
    } else {
      lse.add(got, want);
    }
  }
}

// What lies between the rows of an output must still be poison.
bool gaps_untouched(const HostTensor& tensor) {
  std::vector<uint8_t> copy = tensor.bytes;
  const size_t bytes = facts_of(tensor.dtype).bytes;
  for_each(tensor, [&](int64_t i) { std::memset(&copy[i * bytes], kPoison, bytes); });
  return std::all_of(copy.begin(), copy.end(), [](uint8_t byte) { return byte == kPoison; });
}

}  // namespace

const DtypeFacts& facts_of(Dtype dtype) {
  static const DtypeFacts kFacts[] = {
      {"float16", 2, 2, 1e-3}, {"bfloat16", 4, 2, 8e-3}, {"float32", 2, 4, 1e-5}};
  return kFacts[static_cast<int>(dtype)];
}

int64_t HostTensor::at(int64_t a, int64_t b, int64_t c, int64_t d) const {
  return a * strides[0] + b * strides[1] + c * strides[2] + d;
}

double HostTensor::get(int64_t index) const {
  if (dtype == Dtype::kFloat32) {
    float value = 0;
    std::memcpy(&value, &bytes[index * sizeof(value)], sizeof(value));
    return value;
  }
  uint16_t half = 0;
  std::memcpy(&half, &bytes[index * sizeof(half)], sizeof(half));
  return dtype == Dtype::kFloat16 ? from_float16(half) : from_bfloat16(half);
}

void HostTensor::set(int64_t index, double value) {
  const auto single = static_cast<float>(value);
  if (dtype == Dtype::kFloat32) {
    std::memcpy(&bytes[index * sizeof(single)], &single, sizeof(single));
    return;
  }
  const uint16_t half = dtype == Dtype::kFloat16 ? to_float16(single) : to_bfloat16(single);
  std::memcpy(&bytes[index * sizeof(half)], &half, sizeof(half));
}

std::string Case::describe() const {
  return std::string(facts_of(q.dtype).name) + " B=" + std::to_string(q.shape[0]) +
         " Hq=" + std::to_string(q.shape[1]) + " Hk=" + std::to_string(k.shape[1]) +
         " Sq=" + std::to_string(q.shape[2]) + " Sk=" + std::to_string(k.shape[2]) +
         " D=" + std::to_string(q.shape[3]) + " " + mask;
}

Case random_case(std::mt19937_64& random) {
  Dice dice(random);
  Case c;
  const auto dtype = static_cast<Dtype>(dice.between(0, 2));
  const int64_t group = dice.one_of<4>({1, 1, 2, 5});
  int64_t batch = dice.between(1, 3);
  int64_t heads = dice.between(1, 2);
  int64_t head_dim = dice.one_of<8>({16, 32, 64, 72, 80, 96, 128, kHeadDimMax});
  if (dice.between(0, 3) == 0) head_dim = dice.between(1, kHeadDimMax);
  const std::array<int64_t, 7> usual = {0, 1, 7, 64, 129, 300, 600};
  int64_t seqlen_q = dice.one_of(usual);
  int64_t seqlen_k = dice.one_of(usual);
  if (dice.between(0, 24) == 0) {  // a long one, with little beside it
    batch = heads = 1;
    head_dim = 64;
    seqlen_q = dice.between(1, 300);
    seqlen_k = 4100;
    if (dice.between(0, 1) == 0) std::swap(seqlen_q, seqlen_k);
  }
  c.q = lay_out(dice, dtype, {batch, heads * group, seqlen_q, head_dim});
  c.k = lay_out(dice, dtype, {batch, heads, seqlen_k, head_dim});
  c.v = lay_out(dice, dtype, {batch, heads, seqlen_k, head_dim});
  c.out = lay_out(dice, dtype, c.q.shape);
  c.lse.shape = {batch, heads * group, seqlen_q};
  c.lse.strides = {heads * group * seqlen_q, seqlen_q, 1};
  c.lse.bytes.assign(static_cast<size_t>(elements(c.lse)) * sizeof(float), kPoison);
  for (HostTensor* tensor : {&c.q, &c.k, &c.v}) {
    for_each(*tensor, [&](int64_t i) { tensor->set(i, dice.normal()); });
  }
  c.scale = (0.5 + static_cast<double>(dice.between(0, 10)) / 10) / std::sqrt(head_dim);
  choose_mask(dice, c);
  return c;
}

Errors check_case(const Case& c) {
  Errors errors;
  Norms out;
  Norms lse;
  for (int64_t batch = 0; batch < c.q.shape[0]; ++batch)
    for (int64_t head = 0; head < c.q.shape[1]; ++head)
      compare_head(c, batch, head, out, lse, errors.fault);
  errors.out = out.relative();
  errors.lse = lse.relative();
  if (!gaps_untouched(c.out)) errors.fault = "something was written between the rows of out";
  return errors;
}
