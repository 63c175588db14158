// SPDX-License-Identifier: Apache-2.0
#pragma once
// Gradient accumulation: a batch that is too large for one tape is divided among ranks, and on each rank into
// micro-batches, unevenly if necessary. The loss is the mean over all samples of all ranks, as on one rank with one
// tape:
//
//   const MicroBatches batch(rows, comm);
//   double mine = 0;
//   for (int64_t i = 0; i < batch.count(); ++i) {  // the same count on every rank
//     Tape tape;
//     const Pass pass = {.training = true, .key = key, .first_sample = batch.first_sample(i)};
//     const Var outputs = network(tape.constant(batch.part(images, i)), pass);
//     const Var loss = share(sum(cross_entropy(outputs, batch.part(labels, i))), batch.samples(), comm);
//     mine += loss.value().item();
//     tape.backward(loss, gradients);
//   }
//   const double loss = sum_over_ranks(mine, comm);
//
// A rank with fewer micro-batches than another continues with empty ones, so that every rank calls the same collectives
// of the network. DistributedBatchNorm normalizes each micro-batch over all ranks. The caller sums gradients over ranks
// once, after the last backward or during it.
#include "weft/collectives/share.h"
#include "weft/engine/tape/tape.h"

namespace weft {

// The micro-batches of a step on all ranks. Costs two small collectives, however many micro-batches there are. Samples
// are numbered in rank order, and on each rank in the order of its micro-batches.
class MicroBatches {
 public:
  // `mine` has the number of rows in each micro-batch of this rank; it may be empty.
  MicroBatches(const Rows& mine, Communicator& comm, Site site = Site::here());

  int64_t count() const { return static_cast<int64_t>(rows_.size()); }  // the largest count of any rank; at least one
  const Rows& rows(int64_t i) const;                                    // of micro-batch i, on each rank
  Rows rows() const;                                                    // of all micro-batches, on each rank
  int64_t samples() const;                                              // on all ranks
  int64_t first_sample(int64_t i = 0) const;  // the global number of this rank's first sample in micro-batch i
  Tensor part(const Tensor& mine,
              int64_t i) const;  // the rows of micro-batch i of a tensor with all of this rank's rows

 private:
  int64_t before(int64_t i) const;  // this rank's rows before micro-batch i

  size_t rank_;
  std::vector<Rows> rows_;
};

}  // namespace weft
