// SPDX-License-Identifier: Apache-2.0
// Tensors, and arrays of other frameworks, which come and go by DLPack or the buffer protocol.
#include <nanobind/ndarray.h>

#include <cstring>

#include "python/engine/casters.h"
#include "python/engine/engine.h"
#include "weft/engine/tensor/random.h"

namespace weft::python {
namespace {

using Array = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
constexpr nb::dlpack::dtype bfloat16{static_cast<uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1};

std::optional<DType> dtype_of(nb::dlpack::dtype type) {
  if (type == nb::dtype<float>()) return DType::f32;
  if (type == nb::dtype<double>()) return DType::f64;
  if (type == bfloat16) return DType::bf16;
  if (type == nb::dtype<int64_t>()) return DType::i64;
  if (type == nb::dtype<uint8_t>() || type == nb::dtype<bool>()) return DType::u8;
  return std::nullopt;
}

nb::dlpack::dtype type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return nb::dtype<float>();
    case DType::f64: return nb::dtype<double>();
    case DType::bf16: return bfloat16;
    case DType::i64: return nb::dtype<int64_t>();
    case DType::u8: break;
  }
  return nb::dtype<uint8_t>();
}

// Of its values, which may not be written, for as long as the array lives.
template <class... Framework> nb::ndarray<nb::ro, Framework...> array_of(const Tensor& x) {
  std::vector<size_t> extents(x.shape().begin(), x.shape().end());
  const nb::capsule owner(new Tensor(x), [](void* kept) noexcept { delete static_cast<Tensor*>(kept); });
  return nb::ndarray<nb::ro, Framework...>(x.data(), extents.size(), extents.data(), owner, nullptr,
                                           type_of(x.dtype()));
}

nb::ndarray<nb::ro, nb::numpy> numpy_of(const Tensor& x) {
  return array_of<nb::numpy>(x.dtype() == DType::bf16 ? x.to(DType::f32) : x);
}

// NumPy has what others do not: nested lists, small integers, arrays with gaps.
nb::object by_numpy(nb::handle values) {
  const nb::module_ numpy = nb::module_::import_("numpy");
  nb::object array = numpy.attr("ascontiguousarray")(values).attr("reshape")(numpy.attr("shape")(values));
  const std::string kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
  if (kind == "i" || kind == "u")
    return array.attr("astype")("uint8" == nb::cast<std::string>(array.attr("dtype").attr("name")) ? "uint8" : "int64");
  if (kind == "f" && nb::cast<int>(array.attr("dtype").attr("itemsize")) == 2) return array.attr("astype")("float32");
  return array;
}

}  // namespace

Tensor tensor_of(nb::handle values, std::optional<DType> dtype) {
  const auto typed = [&](const Tensor& x) { return dtype && *dtype != x.dtype() ? x.to(*dtype) : x; };
  if (Tensor tensor; nb::try_cast(values, tensor, false)) return typed(tensor);
  nb::object source = nb::borrow(values);
  if (nb::hasattr(source, "detach")) source = source.attr("detach")();  // PyTorch exports no tensor that has a gradient
  Array array;
  if (!nb::ndarray_check(source) || !nb::try_cast(source, array, false) || !dtype_of(array.dtype()))
    if (!nb::try_cast(by_numpy(source), array, false) || !dtype_of(array.dtype()))
      throw nb::type_error("a tensor is made of an array or of nested lists of numbers, on the host");
  std::vector<int64_t> extents;
  for (size_t i = 0; i < array.ndim(); ++i) extents.push_back(static_cast<int64_t>(array.shape(i)));
  Tensor copy(Shape(extents), *dtype_of(array.dtype()));
  if (copy.bytes() > 0) std::memcpy(copy.mutate(), array.data(), copy.bytes());
  return typed(copy);
}

void add_tensors(nb::module_& module) {
  nb::class_<Tensor>(module, "Tensor",
                     "Plain data: a contiguous, row-major block of one element type. It has no gradient; ops on it are "
                     "computed, but on no tape.\n\n"
                     "Made of an array of any framework on the host, or of nested lists of numbers, and copied. Arrays "
                     "of other frameworks are made of it by DLPack or `numpy()`, and are not copied.")
      .def(
          "__init__",
          [](Tensor* self, nb::object values, std::optional<DType> dtype) {
            new (self) Tensor(tensor_of(values, dtype));
          },
          nb::arg("values"), nb::arg("dtype") = nb::none())
      .def_static(
          "full", [](const Shape& shape, double value, DType dtype) { return Tensor::full(shape, value, dtype); },
          nb::arg("shape"), nb::arg("value"), nb::arg("dtype") = DType::f32)
      .def_static(
          "zeros", [](const Shape& shape, DType dtype) { return Tensor::zeros(shape, dtype); }, nb::arg("shape"),
          nb::arg("dtype") = DType::f32)
      .def_static(
          "uniform",
          [](const Shape& shape, const Random& random, double low, double high, DType dtype) {
            return Tensor::uniform(shape, random, low, high, dtype);
          },
          nb::arg("shape"), nb::arg("random"), nb::arg("low") = 0, nb::arg("high") = 1, nb::arg("dtype") = DType::f32)
      .def_static(
          "normal",
          [](const Shape& shape, const Random& random, double mean, double deviation, DType dtype) {
            return Tensor::normal(shape, random, mean, deviation, dtype);
          },
          nb::arg("shape"), nb::arg("random"), nb::arg("mean") = 0, nb::arg("deviation") = 1,
          nb::arg("dtype") = DType::f32)
      .def_prop_ro("shape", &Tensor::shape)
      .def_prop_ro("dtype", &Tensor::dtype)
      .def_prop_ro("size", &Tensor::size)
      .def(
          "to", [](const Tensor& x, DType dtype) { return x.to(dtype); }, nb::arg("dtype"),
          "In another type, rounded to nearest even.")
      .def("item", &Tensor::item, "The value of a tensor of one element.")
      .def("numpy", &numpy_of,
           "The values as an array of NumPy, which may not be written. NumPy has no bf16; that becomes f32.")
      .def(
          "__array__",
          [](const Tensor& x, nb::object dtype, nb::object) {
            nb::object array = nb::cast(numpy_of(x));
            return dtype.is_none() ? array : array.attr("astype")(dtype);
          },
          nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none())
      .def("__dlpack__", [](const Tensor& x, nb::kwargs) { return nb::cast(array_of<>(x)); })
      .def("__dlpack_device__",
           [](const Tensor&) { return nb::make_tuple(static_cast<int>(nb::device::cpu::value), 0); })
      .def("__repr__", [](const Tensor& x) { return text(x); });
  nb::class_<Random>(
      module, "Random",
      "A stream of random numbers: draw i is a function of (seed, stream, i) only, on every rank and thread.")
      .def(
          "__init__",
          [](Random* self, uint64_t seed, uint64_t stream, uint64_t offset) {
            new (self) Random{seed, stream, offset};
          },
          nb::arg("seed") = 0, nb::arg("stream") = 0, nb::arg("offset") = 0)
      .def("at", &Random::at, nb::arg("further"), "The same stream from a later draw on.")
      .def("fork", &Random::fork, nb::arg("label"), "An independent stream for a named purpose.");
  nb::implicitly_convertible<nb::ndarray<nb::ro>, Tensor>();
  nb::implicitly_convertible<uint64_t, Random>();
}

}  // namespace weft::python
