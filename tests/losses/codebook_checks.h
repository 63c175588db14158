// SPDX-License-Identifier: Apache-2.0
#pragma once
// Shared by the tests of VectorQuantize and its codebook: steps of training on tokens that are sharded over ranks.
#include <algorithm>
#include <cmath>

#include "tests/support/on_ranks.h"
#include "weft/losses/quantizers/vector_quantize.h"

namespace weft::checks {

using State = std::vector<std::vector<double>>;

inline State state_of(const Module& module) {
  State state;
  for (const Parameter* p : module.parameters()) state.push_back(p->value.values());
  for (const Parameter* p : module.buffers()) state.push_back(p->value.values());
  return state;
}

// A rank's range of all rows: uneven; of five ranks two have none.
inline std::pair<int64_t, int64_t> part(int64_t rows, const Communicator& comm) {
  constexpr int64_t weights[] = {3, 1, 0, 2, 0};
  int64_t all = 0, before = 0;
  for (int r = 0; r < comm.size(); ++r) all += weights[r % 5];
  for (int r = 0; r < number(comm); ++r) before += weights[r % 5];
  return {rows * before / all, rows * (before + weights[number(comm) % 5]) / all};
}

// The state of a quantizer after `work` on a number of ranks; expects it to be equal on all of them.
template <class Work> State state_after(int ranks, const VectorQuantizeOptions& options, Work work) {
  std::vector<State> states(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Communicator& comm) {
    VectorQuantize quantize("vq", options, {.key = {1}});
    work(quantize, comm);
    states[static_cast<size_t>(number(comm))] = state_of(quantize);
  });
  for (const State& state : states) CHECK(state == states[0]);
  return states[0];
}

constexpr int64_t dim = 6;
constexpr Pass training(uint64_t step) { return {.training = true, .key = {9, step}}; }

// The tokens of a step, around a center that moves to and fro so that codes die, and their mask.
inline Tensor tokens(uint64_t step, int64_t count) {
  return Tensor::normal({count, dim}, {4, step}, 3 * std::sin(static_cast<double>(step)), 1);
}
inline Tensor mask(uint64_t step, int64_t count) {
  Tensor mask({count}, DType::u8);
  for (int64_t i = 0; i < count; ++i)
    mask.mutate<uint8_t>()[i] = uniform_draw<double>({5, step}, static_cast<uint64_t>(i)) < 0.8;
  return mask;
}

// Training steps on this rank's part of the tokens, with a number of passes per step.
inline auto steps(uint64_t count, int64_t passes) {
  return [=](VectorQuantize& quantize, Communicator& comm) {
    for (uint64_t step = 0; step < count; ++step) {
      const int64_t rows = 40 + static_cast<int64_t>(step) % 7;
      const auto [first, last] = part(rows, comm);
      for (int64_t i = 0; i < passes; ++i) {
        const int64_t begin = first + (last - first) * i / passes, end = first + (last - first) * (i + 1) / passes;
        quantize(tokens(step, rows).slice(begin, end), training(step), comm, Var(mask(step, rows).slice(begin, end)));
      }
      quantize.update(comm, {8, step});
    }
  };
}

inline VectorQuantizeOptions following() {
  return {.codebook = {.dim = dim, .codes = 12, .dead_below = 0.7, .k_means_iterations = 5}};
}

}  // namespace weft::checks
