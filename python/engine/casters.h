// SPDX-License-Identifier: Apache-2.0
#pragma once
// How small values cross between C++ and Python: a Shape is a tuple, a rank a number, one of several choices a word.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <string_view>

#include "weft/collectives/call.h"
#include "weft/engine/kernels/backend.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/ops/images.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/tensor/tensor.h"
#include "weft/losses/common/key_schedule.h"

namespace weft::python {

// The words for the values of an enumeration that counts from zero: "ordered, fast". Specialized by
// WEFT_PYTHON_CHOICE.
template <class Enum> struct Words;

template <class Enum> std::optional<Enum> choice_named(std::string_view word) {
  std::string_view rest = Words<Enum>::all;
  for (int i = 0;; ++i) {
    const size_t end = std::min(rest.find(", "), rest.size());
    if (rest.substr(0, end) == word) return static_cast<Enum>(i);
    if (end == rest.size()) return std::nullopt;
    rest.remove_prefix(end + 2);
  }
}
template <class Enum> std::string_view name_of_choice(Enum choice) {
  std::string_view rest = Words<Enum>::all;
  for (int i = static_cast<int>(choice); i > 0; --i) rest.remove_prefix(rest.find(", ") + 2);
  return rest.substr(0, rest.find(", "));
}

struct NamedActivation {
  const char* name;
  Unary op;
};
inline constexpr NamedActivation activations[] = {
    {"relu", Unary::Relu}, {"gelu", Unary::Gelu},       {"gelu_tanh", Unary::GeluTanh}, {"silu", Unary::Silu},
    {"tanh", Unary::Tanh}, {"sigmoid", Unary::Sigmoid}, {"softplus", Unary::Softplus}};

}  // namespace weft::python

namespace nanobind::detail {

template <class Enum, class Type> struct choice_caster {
  NB_TYPE_CASTER(Enum, Type::name)
  bool from_python(handle word, uint8_t, cleanup_list*) noexcept {
    if (!PyUnicode_Check(word.ptr())) return false;
    const auto found = weft::python::choice_named<Enum>(PyUnicode_AsUTF8(word.ptr()));
    if (found) value = *found;
    return found.has_value();
  }
  static handle from_cpp(Enum choice, rv_policy, cleanup_list*) noexcept {
    const std::string_view word = weft::python::name_of_choice(choice);
    return PyUnicode_FromStringAndSize(word.data(), static_cast<Py_ssize_t>(word.size()));
  }
};

}  // namespace nanobind::detail

// WEFT_PYTHON_CHOICE(ReduceOp, "sum, mean", "typing.Literal['sum', 'mean']")
#define WEFT_PYTHON_CHOICE(Enum, words, literal)                                                              \
  namespace weft::python {                                                                                    \
  template <> struct Words<Enum> {                                                                            \
    static constexpr std::string_view all = words;                                                            \
    static constexpr auto name = nanobind::detail::const_name(literal);                                       \
  };                                                                                                          \
  }                                                                                                           \
  namespace nanobind::detail {                                                                                \
  template <> struct type_caster<weft::Enum> : choice_caster<weft::Enum, weft::python::Words<weft::Enum>> {}; \
  }

WEFT_PYTHON_CHOICE(DType, "f32, f64, bf16, i64, u8", "typing.Literal['f32', 'f64', 'bf16', 'i64', 'u8']")

namespace nanobind::detail {

// A number in a struct: GroupRank, GlobalRank.
template <class Rank> struct rank_caster {
  NB_TYPE_CASTER(Rank, const_name("int"))
  bool from_python(handle number, uint8_t flags, cleanup_list* cleanup) noexcept {
    make_caster<int> caster;
    const bool found = caster.from_python(number, flags, cleanup);
    if (found) value = Rank{caster.value};
    return found;
  }
  static handle from_cpp(Rank rank, rv_policy, cleanup_list*) noexcept { return PyLong_FromLong(rank.value); }
};
template <> struct type_caster<weft::GroupRank> : rank_caster<weft::GroupRank> {};
template <> struct type_caster<weft::GlobalRank> : rank_caster<weft::GlobalRank> {};

template <> struct type_caster<weft::Shape> {
  NB_TYPE_CASTER(weft::Shape, const_name("tuple[int, ...]"))
  bool from_python(handle extents, uint8_t flags, cleanup_list* cleanup) noexcept {
    make_caster<std::vector<int64_t>> caster;
    if (!caster.from_python(extents, flags, cleanup)) return false;
    if (caster.value.size() > weft::Shape::max_rank || !weft::Shape::fits(caster.value)) return false;
    value = weft::Shape(caster.value);
    return true;
  }
  static handle from_cpp(const weft::Shape& shape, rv_policy, cleanup_list*) noexcept {
    PyObject* extents = PyTuple_New(shape.rank());
    for (int i = 0; extents && i < shape.rank(); ++i) PyTuple_SET_ITEM(extents, i, PyLong_FromLongLong(shape[i]));
    return extents;
  }
};

// One number for both axes, or two.
template <> struct type_caster<weft::YX> {
  NB_TYPE_CASTER(weft::YX, const_name("int | tuple[int, int]"))
  bool from_python(handle numbers, uint8_t flags, cleanup_list* cleanup) noexcept {
    make_caster<int64_t> one;
    make_caster<std::pair<int64_t, int64_t>> two;
    if (one.from_python(numbers, flags, cleanup))
      value = {one.value, one.value};
    else if (two.from_python(numbers, flags, cleanup))
      std::tie(value.y, value.x) = static_cast<std::pair<int64_t, int64_t>>(two);
    else
      return false;
    return true;
  }
  static handle from_cpp(weft::YX p, rv_policy policy, cleanup_list* cleanup) noexcept {
    return make_caster<std::pair<int64_t, int64_t>>::from_cpp(std::pair(p.y, p.x), policy, cleanup);
  }
};

template <> struct type_caster<weft::Transpose> {
  NB_TYPE_CASTER(weft::Transpose, const_name("bool"))
  bool from_python(handle truth, uint8_t, cleanup_list*) noexcept {
    value = truth.is(Py_True) ? weft::Transpose::yes : weft::Transpose::no;
    return PyBool_Check(truth.ptr());
  }
  static handle from_cpp(weft::Transpose transpose, rv_policy, cleanup_list*) noexcept {
    return handle(transpose == weft::Transpose::yes ? Py_True : Py_False).inc_ref();
  }
};

template <> struct type_caster<weft::Activation> {
  NB_TYPE_CASTER(weft::Activation,
                 const_name("typing.Literal['relu', 'gelu', 'gelu_tanh', 'silu', 'tanh', 'sigmoid', 'softplus']"))
  bool from_python(handle word, uint8_t, cleanup_list*) noexcept {
    if (!PyUnicode_Check(word.ptr())) return false;
    for (const auto& [name, op] : weft::python::activations)
      if (PyUnicode_CompareWithASCIIString(word.ptr(), name) == 0) {
        value = weft::Activation{.op = op, .scalars = {}};
        return true;
      }
    return false;
  }
};

// "ring", or ("chunked", 256).
template <> struct type_caster<weft::KeySchedule> {
  NB_TYPE_CASTER(weft::KeySchedule,
                 const_name("typing.Literal['gather', 'ring', 'both_ways', 'per_rank', 'chunked'] | tuple[str, int]"))
  bool from_python(handle given, uint8_t flags, cleanup_list* cleanup) noexcept {
    make_caster<std::string> name;
    make_caster<std::pair<std::string, int64_t>> chunked;
    std::string word;
    if (name.from_python(given, flags, cleanup))
      word = name.value;
    else if (chunked.from_python(given, flags, cleanup))
      std::tie(word, value.chunk) = static_cast<std::pair<std::string, int64_t>>(chunked);
    static constexpr const char* words[] = {"gather", "ring", "both_ways", "per_rank", "chunked"};
    for (size_t i = 0; i < std::size(words); ++i)
      if (word == words[i]) {
        value.kind = static_cast<weft::KeySchedule::Kind>(i);
        return true;
      }
    return false;
  }
};

}  // namespace nanobind::detail
