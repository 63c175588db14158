// SPDX-License-Identifier: Apache-2.0
#pragma once
// What random programs, and the C++ that is printed for them, do to values besides Weft's own operations.
#include "weft/collectives/collectives.h"
#include "weft/engine/ops/elementwise.h"
#include "weft/engine/ops/reduce.h"
#include "weft/engine/ops/shape_ops.h"

namespace weft::random_programs {

// The same elements in another shape: as many as it needs of them, again from the start if there are too few. A shape
// gets zeros from a value without elements.
inline Var fit(const Var& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const int64_t needed = shape.size();
  Var flat = reshape(x, {x.size()});
  if (x.size() == 0) flat = pad(flat, 0, 0, needed);
  if (flat.size() < needed) {
    const int64_t times = (needed + flat.size() - 1) / flat.size();
    flat = reshape(repeat(flat, 0, times), {times * flat.size()});
  }
  return reshape(flat.size() == needed ? flat : slice(flat, 0, 0, needed), shape);
}

// Values of any size, moved smoothly into a range.
inline Var into_range(const Var& x, double low, double high) {
  return 0.45 * (high - low) * sin(x) + 0.5 * (low + high);
}

// What the rank before has, by a message around a ring.
inline Var sent_around(const Var& x, Communicator& comm) {
  require(x.tape() != nullptr, "sent_around: the value is on no tape");
  const int n = comm.size(), me = comm.rank().value;
  send(x, {(me + 1) % n}, comm);
  return receive(*x.tape(), x.shape(), x.dtype(), x.device(), {(me + n - 1) % n}, comm);
}

// x + distance direction
inline Tensor moved_by(const Tensor& x, const Tensor& direction, double distance) {
  if (distance == 0) return x;
  std::vector<double> values = x.values();
  const std::vector<double> step = direction.values();
  for (size_t i = 0; i < values.size(); ++i) values[i] += distance * step[i];
  return Tensor::from(x.shape(), values, DType::f64);
}

// Random data in [-1, 1) of the rank, or of the group of ranks, that `whose` numbers.
inline constexpr uint64_t directions_key = uint64_t{1} << 32;  // added to keys; kinds of steps use the lower bits
inline Tensor drawn(int64_t rows, uint64_t key, int whose) {
  return Tensor::uniform({rows, 3}, {key, static_cast<uint64_t>(whose)}, -1, 1, DType::f64);
}

}  // namespace weft::random_programs
