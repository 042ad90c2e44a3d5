#include "pack_walk.h"

#include <string>

#include "dispatch.h"
#include "error.h"
#include "pack_builder.h"

namespace aotbuild::test {
namespace {

template <class Action>
void allow_errors(Action action) {
  try {
    action();
  } catch (const Error& error) {
    if (error.message().empty()) {
      throw;
    }
  }
}

size_t length(const Pack& pack, uint32_t text) { return pack.string(text).size(); }

size_t walk_operator(const Pack& pack, const format::Operator& op) {
  size_t sum = length(pack, op.name);
  for (const format::Tensor& tensor : pack.tensors(op)) {
    sum += length(pack, tensor.name);
  }
  for (const format::Column& column : pack.columns(op)) {
    sum += length(pack, column.name) + length(pack, column.source_name);
  }
  for (const format::Row& row : pack.rows(op)) {
    sum += length(pack, row.reason);
  }
  for (const int64_t value : pack.values(op)) {
    sum += static_cast<size_t>(value);
  }
  return sum;
}

size_t walk_image(const Pack& pack, const format::Image& image) {
  size_t sum = length(pack, image.name) + length(pack, image.symbol) + length(pack, image.options);
  for (const format::Argument& argument : pack.arguments(image)) {
    sum += length(pack, argument.name) + length(pack, argument.source_name);
  }
  for (const format::Factor& factor : pack.factors(image)) {
    sum += length(pack, factor.source_name);
  }
  return sum;
}

// The sample pack's call, which a spoiled pack may not know.
void walk_call(const Pack& pack, const format::Operator& op) {
  const FakeTensor x({100, 64}, kFloat16);
  const FakeTensor out({100, 64}, kFloat16);
  Call call;
  call.add("x", x.get());
  call.add("out", out.get());
  call.add("mask", static_cast<const aotbuild_tensor*>(nullptr));
  call.add("fast", int64_t{1});
  call.add("scale", 0.5);
  allow_errors([&] { validate_call(pack, op, call); });
  allow_errors([&] {
    std::string why;
    dispatch(pack, op, call, &why);
  });
  for (const format::Image& image : pack.images()) {
    allow_errors([&] {
      std::string why;
      promises_hold(pack, image, call, &why);
    });
    allow_errors([&] { grid_of(pack, image, call, 132); });
  }
}

}  // namespace

bool open_and_walk(const uint8_t* data, size_t size) {
  std::unique_ptr<const Pack> pack;
  allow_errors([&] { pack = Pack::from_memory(data, size, "fuzz.aotpack"); });
  if (pack == nullptr) {
    return false;
  }
  volatile size_t sum = pack->arch().size() + pack->family().size();
  for (const format::Operator& op : pack->operators()) {
    sum = sum + walk_operator(*pack, op);
    pack->find_operator(pack->string(op.name));
    walk_call(*pack, op);
  }
  for (const format::Descriptor& descriptor : pack->descriptors()) {
    sum = sum + length(*pack, descriptor.tensor);
  }
  for (const format::Image& image : pack->images()) {
    sum = sum + walk_image(*pack, image);
    allow_errors([&] { pack->inflate(image); });
  }
  return true;
}

}  // namespace aotbuild::test
