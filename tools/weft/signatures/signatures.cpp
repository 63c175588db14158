// SPDX-License-Identifier: Apache-2.0
#include "tools/weft/signatures/signatures.h"

#include <stdexcept>

namespace weft::verify {

const std::vector<Signature>& signatures() {
  static const std::vector<Signature> all = {
      {"S0", "correct", "the gradient of one process with the whole batch", ""},
      {"S1", "no gradient through the gather",
       "features learn as queries only, at about half of the truth's length; a statistic has no gradient",
       "gather with an operation that has a gradient, whose adjoint is a reduce-scatter sum"},
      {"S2", "only the own slot of the gathered gradient is used",
       "what other ranks' queries say of these keys is lost", "reduce-scatter (sum) the gradient of all slots"},
      {"S3", "own slot re-inserted", "the encoder's gradient is 1/W of the truth while that of shared scalars is right",
       "reduce-scatter (sum) the gathered gradient instead of re-inserting the own features"},
      {"S4", "own slot multiplied by W", "right for replicated losses only",
       "reduce-scatter (sum) the gradient of all slots, without a factor"},
      {"S5", "all-reduce of each rank's own slice", "every rank adds up gradients of different samples",
       "all-reduce all slots, then take the own one; or reduce-scatter"},
      {"S6", "mean instead of sum in the adjoint",
       "the part of the keys, or of statistics, is 1/W of the truth, that of the queries right",
       "the adjoint of a gather is a sum; leave the mean to the reducer"},
      {"S7", "reduced twice in the adjoint", "the part of the keys, or of statistics, is W times the truth",
       "reduce once"},
      {"S8", "the reducer sums instead of averaging", "every gradient, also of shared scalars, is W times the truth",
       "let the reducer average, or divide the loss by the number of ranks"},
      {"S9", "an additional 1/W", "every gradient, also of shared scalars, is 1/W of the truth",
       "divide by the number of ranks once"},
      {"S10", "a statistic is communicated as a constant",
       "the gradient of that term is 1/W of the truth, its value and the other terms are right",
       "sum or gather with an operation that has a gradient, whose adjoint is a sum over ranks"},
      {"S11", "the sum of a statistic is discarded",
       "that term has the gradient of each rank's own statistic, as if it were 1/W of it",
       "use what the all-reduce returns: it does not work in place"},
      {"S12", "mean of the means of uneven shards",
       "each rank's rows weigh B / (W b_r) times what they should, or its statistics are of its own rows",
       "divide sums by the number of samples of all ranks"},
      {"S13", "padding counted", "all rows weigh B / (W b_max) times what they should", "count real rows"},
      {"S14", "the accumulated buffer is reduced again, as a sum", "micro-batch k counts W^(A-1-k) times",
       "reduce what was added since the last reduction only"},
      {"S15", "a later backward overwrites", "only the last micro-batch is left", "accumulate"},
      {"S16", "averaging over micro-batches misplaced", "a uniform factor that depends on their number A",
       "divide by A once"},
      {"S17", "reduced at the wrong micro-batch", "later micro-batches stay local: ranks disagree",
       "reduce after the last micro-batch"},
      {"S18", "lost where the last micro-batch does not use it", "the gradient is zero", "reduce every parameter"},
      {"S19", "cached features: scalars accumulate in every pass",
       "the gradient of shared scalars is A times the truth, that of features right",
       "detach shared scalars in all passes but the last"},
      {"S20", "the key gradient is not sent home", "one tower is right, the other has only what its own rank says",
       "send the gradient of travelled features back to their owners and add it there"},
      {"S21a", "normalization by each rank's own statistics",
       "on each rank the gradient at the input sums to zero in every channel, alone and times the normalized input",
       "synchronize the statistics of the batch"},
      {"S21b", "normalization whose backward sums are each rank's own",
       "the error on each rank is, in every channel, a constant plus a multiple of the normalized input",
       "sum over all ranks in the backward, too"},
      {"S22", "bucket never reduced", "each rank keeps its own gradient", "reduce every bucket"},
      {"S23", "stale bucket", "the gradient is that of the step before", "wait for the reduction of this step"},
      {"S24", "read before completion", "the contributions of some ranks are missing", "wait before reading"},
      {"S25", "labels not offset by the rank", "rank 0 is right, all others pull towards rank 0's samples",
       "add the number of the rank's first row to its labels"},
      {"S26", "replicas have diverged", "ranks differentiate at different parameters",
       "broadcast parameters, codebooks and buffers before training, and reduce all of their gradients"},
      {"S27", "what the adjoint computed is dropped",
       "uninitialised memory: absurd numbers, which differ when the step is repeated",
       "write the result into the memory that is returned, also where tensors are not contiguous"},
      {"S28", "sums in a lower precision",
       "off by up to W or A times the rounding of that precision, in a random direction",
       "add up in f32, and round once"},
      {"S29", "never summed over an axis", "copies of a parameter have different gradients, whose sum is the truth",
       "all-reduce (sum) its gradient over the axis that holds the copies"},
      {"S30", "a factor on one class of parameters",
       "the factor is the same inside a class and differs between classes",
       "divide the gradients of each class by the number of ranks that it is averaged over"},
      {"S31", "parameters that count more or less than once in the norm",
       "gradients are right until they are clipped, by the wrong norm",
       "add up the squares of each parameter once: those of all shards, and of one of equal copies"},
      {"S32", "a use of the parameter is lost", "a tied or reused parameter learns from some of its uses only",
       "add up the gradients of all uses before the reducer takes them"},
      {"S33", "divided by some other count", "a uniform factor that is a ratio of counts",
       "divide by the number of samples of all ranks"},
      {"S34", "put together over the wrong axis", "ranks get what belongs to others, and lack what is theirs",
       "give the collective the group of the axis that divides the tensor"},
      {"S35", "features never gathered", "each rank compares its own samples with each other only",
       "gather the features of all ranks before the loss"},
      {"S36", "slots in another order", "ranks get the gradient of features that other ranks have sent",
       "return to each rank the slot that it has sent"},
      {"S37", "the optimizer takes a slice for the whole",
       "gradients are right; the update is right for no element, whatever the rate",
       "gather what the rule needs whole, or give each matrix to one rank"},
      {"S38", "clipped by another norm than that of all gradients",
       "gradients are right; the update has another length, or another one on each rank",
       "reduce first, then clip by the norm of the whole gradient of all parameters"},
      {"S39", "a direction of the loss is left out", "each tower learns as queries only, or as keys only",
       "add up both directions, each with half of the weight"},
  };
  return all;
}

const Signature& signature(const std::string& id) {
  for (const Signature& each : signatures())
    if (each.id == id) return each;
  throw std::logic_error("no signature is called " + id);
}

void Observed::add(std::string name, const Matrix& tensor, Eigen::Index of_row) {
  names.push_back(std::move(name));
  tensors.push_back(tensor);
  columns.push_back(of_row);
}

Observed observed(const std::string& name, const std::vector<Matrix>& of_ranks) {
  Observed result;
  for (const Matrix& tensor : of_ranks) result.add(name + std::to_string(result.names.size()), tensor);
  return result;
}

}  // namespace weft::verify
