// Whether a function type that we declare may stand for a vendor's: same number of parameters, and
// each pair is passed the same way. An enum passes as the integer of its size, a pointer as any
// pointer.
#pragma once

#include <type_traits>

namespace aotbuild::abi {

template <class A, class B>
constexpr bool passes_alike() {
  if constexpr (std::is_pointer_v<A> || std::is_pointer_v<B>) {
    return std::is_pointer_v<A> && std::is_pointer_v<B>;
  } else {
    constexpr bool integers = (std::is_integral_v<A> || std::is_enum_v<A>) &&
                              (std::is_integral_v<B> || std::is_enum_v<B>);
    return integers && sizeof(A) == sizeof(B);
  }
}

template <class Ours, class Theirs>
struct Compatible : std::false_type {};

template <class R, class... A, class S, class... B>
struct Compatible<R(A...), S(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) == sizeof...(B)) {
      return passes_alike<R, S>() && (passes_alike<A, B>() && ...);
    } else {
      return false;
    }
  }();
};

}  // namespace aotbuild::abi
