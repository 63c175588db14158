// SPDX-License-Identifier: Apache-2.0
#pragma once
// The names that code blocks in the documents may use: a Page for each document.
#include <iostream>

#include "every_header.h"
#include "tests/cases/collectives/case_rows.h"
#include "tests/cases/collectives/collective_case.h"
#include "tests/cases/losses/loss_case.h"
#include "tests/documents/test_documents.h"

namespace weft::documents {

// Data that differ by rank.
struct OnRanks {
  Communicator& comm;
  const int n = comm.size(), me = comm.rank().value;
  Tape tape = {};
  Gradients gradients = {};

  explicit OnRanks(Communicator& comm) : comm(comm) {}
  Tensor draw(const Shape& shape, DType dtype = DType::f32) {
    return Tensor::uniform(shape, {7, static_cast<uint64_t>(100 * me + drawn_++)}, 0.1, 0.9, dtype);
  }
  Var leaf(const Shape& shape) { return tape.watch(draw(shape)); }

 private:
  int drawn_ = 0;
};

namespace readme {
struct Page : OnRanks {
  using OnRanks::OnRanks;
  Mlp network{"network", {3, 4, 2}, {}};
  Var first = leaf({3, 2}), second = leaf({3, 2});
  const Var loss = share(sum(square(network(tape.constant(draw({5, 3}))))), 5 * n, comm);
  const double rate = 0.1;
};
}  // namespace readme

namespace contributing {}  // namespace contributing

namespace docs_collectives {
struct Page : OnRanks {
  using OnRanks::OnRanks;
  const double rows_everywhere = 2.0 * n * n;
  const Var x = leaf({2 * n, 3}), w = leaf({3, 5}), z = leaf({2 * n, 3}), h = leaf({2 * n, 3});
  const Var my_classes = leaf({4, 3}), probability = leaf({4}), my_weights = tape.constant(draw({4}));
  const Counts counts = case_rows::uneven_counts(n), counts_back = AllToAll{counts}.adjoint().counts;
  const Var tokens = leaf({total_rows(counts[static_cast<size_t>(me)]), 3});
};
}  // namespace docs_collectives

namespace docs_losses {
struct Page : OnRanks {
  using OnRanks::OnRanks;
  const Var first = leaf({3, 2}), second = leaf({3, 2}), error = leaf({me, 2}), features = leaf({me, 2});
  Parameter weight{"weight", Tensor::zeros({2})};
  DataParallel training{{{{&weight}, Sgd{}}}, comm};
  static Var f(const Var& squares, const Var& rows) { return sum(squares) + sum(rows); }
};
}  // namespace docs_losses

namespace docs_training {
struct Page : OnRanks {
  Mlp network{"network", {3, 4, 2}, {}};
  Linear judge{"judge", 2, 1, {}};
  const std::vector<Parameter*> all = network.parameters(), matrices = {all[0], all[2]}, others = {all[1], all[3]};
  DataParallel training{{{all, Sgd{}}}, comm};
  const Var made = network(tape.constant(draw({5, 3})));
  const Var loss = share(sum(square(made)), 5 * n, comm);
  const double rate = 0.1;
  explicit Page(Communicator& comm) : OnRanks(comm) { tape.backward(loss, training.gradients(), Keep::tape); }
};
}  // namespace docs_training

namespace docs_debugging {
struct Page : OnRanks {
  using OnRanks::OnRanks;
  Parameter weight{"weight", Tensor::from({2}, {0.5, -1}, DType::f64)};
  std::vector<Parameter*> parameters = {&weight};
  const Tensor own = draw({2}, DType::f64), everyones = comm.all_reduce(own);
  Var share(Tape& tape) { return sum(square(tape.watch(weight)) * tape.constant(own)); }
  double loss_of_the_whole_batch() const { return sum(square(Var(weight.value)) * Var(everyones)).value().item(); }
  std::vector<Tensor> what_the_optimizer_gets() const { return {(2 * Var(weight.value) * Var(everyones)).value()}; }
};
}  // namespace docs_debugging

namespace docs_checkpoints {
struct Page : OnRanks {
  using OnRanks::OnRanks;
  Linear encoder{"encoder", 3, 2, {}};
  const Tensor velocity = draw({3, 2});
  const int64_t step = 120;
};
}  // namespace docs_checkpoints

}  // namespace weft::documents
