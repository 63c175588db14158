// SPDX-License-Identifier: Apache-2.0
// Training on several ranks ends with the weights of one process with the whole batch, and several ways to distribute
// the work give the same bits.
#include "tests/support/on_ranks.h"
#include "tests/training/training_table.h"

using namespace weft;

TEST_CASE("training on ranks ends with the weights of one process with the whole batch", "[r28][r29][r30][r32][r33]") {
  for (const TrainingRow& row : training_table()) {
    const auto check = [&](Communicator& comm) {
      const double difference = row.difference(comm);
      require(difference <= row.limit, row.name, ": ", difference, " is more than ", row.limit);
    };
    row.limit > 0 ? on_ranks({1, 2, 3, 4, 8}, check) : on_ranks({2, 3}, check);
  }
}

TEST_CASE("the training cases divide samples unevenly, and some ranks have none", "[r34]") {
  on_ranks({2, 3, 4, 8}, [](Communicator& comm) {
    Gradients none;
    bool uneven = false, empty = false;
    for (int64_t i = 0; i < training_steps; ++i) {
      const Step step = training_step(i, comm, none);
      const Communicator::Rows rows = comm.rows_of(step.rows);
      int64_t total = 0;
      for (const int64_t n : rows) {
        total += n;
        uneven = uneven || n != rows[0];
        empty = empty || n == 0;
      }
      expect(total == step.samples, "every sample belongs to one rank");
    }
    expect(uneven && empty, "uneven, and sometimes empty");
  });
}
