// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared by tests of several ranks. Catch's assertions are for one thread, so ranks throw, and on_ranks reports it.
#include <cmath>
#include <cstring>

#include "tests/support/catch.h"
#include "weft/collectives/communicator.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft {

template <class Body> void on_ranks(std::initializer_list<int> sizes, Body body) {
  for (const int n : sizes) {
    INFO(n << " ranks");
    CHECK_NOTHROW(run_ranks(n, [&](Communicator& comm) { body(comm); }));
  }
}
template <class Body> void on_ranks(Body body) { on_ranks({1, 2, 3, 5}, body); }

// Random values that differ by rank, and that every rank can compute for every other; `use` selects different ones.
inline Tensor data_of(int rank, const Shape& shape, int use = 0, DType dtype = DType::f64) {
  return Tensor::uniform(shape, {11, static_cast<uint64_t>(rank * 100 + use)}, -1, 1, dtype);
}
inline int number(const Communicator& comm) { return comm.rank().value; }

// Rank r's rows of all, if every rank has the same number.
inline Var block(const Var& all, int64_t rows, int r) { return slice(all, 0, rows * r, rows * (r + 1)); }

inline Tensor scalar(double x) { return Tensor::full({}, x, DType::f64); }

// f(first) + ... + f(last - 1).
template <class F> Var total(int first, int last, F f) {
  Var sum = f(first);
  for (int r = first + 1; r < last; ++r) sum = sum + f(r);
  return sum;
}
template <class F> Var total(const Communicator& comm, F f) { return total(0, comm.size(), f); }

inline void expect(bool ok, const std::string& what, Site site = Site::here()) {
  require(ok, "line ", site.line, ": ", what);
}
inline void expect_close(const Var& actual, const Var& expected, Site site = Site::here()) {
  bool ok = actual.shape() == expected.shape();
  const std::vector<double> a = actual.value().values(), b = expected.value().values();
  for (size_t i = 0; ok && i < a.size(); ++i) ok = std::abs(a[i] - b[i]) <= 1e-12 * (1 + std::abs(b[i]));
  expect(ok, text(actual.value()) + " is not " + text(expected.value()), site);
}
inline bool have_same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         (a.size() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}
inline void expect_same_bits(const Tensor& actual, const Tensor& expected, Site site = Site::here()) {
  expect(have_same_bits(actual, expected), text(actual) + " has not the bits of " + text(expected), site);
}
// Expects f to throw an Error that contains all of these texts; returns its text.
template <class F> std::string expect_refusal(F f, std::initializer_list<const char*> said, Site site = Site::here()) {
  std::string message = "nothing was refused";
  try {
    f();
  } catch (const Error& error) {
    message = error.what();
  }
  for (const char* part : said)
    expect(message.find(part) != std::string::npos, message + "\n  does not say: " + part, site);
  return message;
}

}  // namespace weft
