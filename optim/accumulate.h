#pragma once
// A batch too large for one tape: divided among ranks, and on each into micro-batches, unevenly if need be. The loss is
// the sum over all samples of all ranks divided by their number, as if one rank had seen them at once:
//
//   const MicroBatches batch(rows, comm);
//   double mine = 0;
//   for (int64_t i = 0; i < batch.count(); ++i) {  // equally often on every rank
//     Tape tape;
//     const Pass pass = {.training = true, .key = key, .first_sample = batch.first_sample(i)};
//     const Var outputs = network(tape.constant(batch.part(images, i)), pass);
//     const Var loss = share(sum(cross_entropy(outputs, batch.part(labels, i))), batch.samples(), comm);
//     mine += loss.value().item();
//     tape.backward(loss, gradients);
//   }
//   const double loss = sum_over_ranks(mine, comm);
//
// A rank that has fewer micro-batches than another goes on with empty ones, so that collectives in the network meet.
// DistributedBatchNorm is then that of each micro-batch, over all ranks. Gradients are summed over ranks once, by the
// caller, after the last backward, or during it.
#include "collectives/share.h"
#include "engine/tape.h"

namespace weft {

// What ranks agree on about a step's micro-batches, at the price of two small meetings however many there are. Samples
// are numbered rank by rank, and on each rank in the order of its micro-batches.
class MicroBatches {
 public:
  // From the rows of each that this rank has, if any.
  MicroBatches(const Rows& mine, Communicator& comm, Site site = Site::here());

  int64_t count() const { return static_cast<int64_t>(rows_.size()); }  // of the rank with most; at least one
  const Rows& rows(int64_t i) const;                                    // of micro-batch i, on each rank
  Rows rows() const;                                                    // of all micro-batches, on each rank
  int64_t samples() const;                                              // of all ranks
  int64_t first_sample(int64_t i = 0) const;         // the number of this rank's first in micro-batch i
  Tensor part(const Tensor& mine, int64_t i) const;  // the rows in micro-batch i of a tensor of all this rank's samples

 private:
  int64_t before(int64_t i) const;  // this rank's rows before micro-batch i

  size_t rank_;
  std::vector<Rows> rows_;
};

}  // namespace weft
