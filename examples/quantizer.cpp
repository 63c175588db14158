// SPDX-License-Identifier: Apache-2.0
// A vector quantizer whose codes are moving averages of the tokens of all ranks. Ranks have 0, 20 and 40 tokens. All
// ranks end with bit-identical codes, which are those of one process with all tokens. Prints the mean squared distance
// of tokens to their codes before and after ten updates.
#include <iostream>

#include "weft/collectives/checks/agreement.h"
#include "weft/collectives/share.h"
#include "weft/collectives/transports/self.h"
#include "weft/losses/quantizers/vector_quantize.h"

using namespace weft;

namespace {

constexpr int64_t tokens_of_all = 60;

// The commitment loss, the mean squared distance of tokens to their codes, in each of ten training steps.
std::vector<double> follow(VectorQuantize& quantizer, const Tensor& tokens, Communicator& comm) {
  std::vector<double> losses;
  for (uint64_t step = 0; step < 10; ++step) {
    Tape tape;
    const Pass pass = {.training = true, .key = Random{.seed = 5}.fork(step)};
    const Quantized quantized = quantizer(tape.constant(tokens), pass, comm);
    losses.push_back(sum_over_ranks(quantized.loss.value().item(), comm));
    quantizer.update(comm, pass.key);  // once per step: moving averages of the tokens of all ranks
  }
  return losses;
}

void compare(Communicator& comm) {
  const int64_t rank = comm.rank().value, bounds[] = {0, 0, 20, tokens_of_all};
  const Tensor all = Tensor::normal({tokens_of_all, 2}, {.seed = 6});
  const VectorQuantizeOptions options{.codebook = {.dim = 2, .codes = 4}};
  const Init init{.key = {.seed = 7}};
  VectorQuantize divided("quantizer", options, init), whole("quantizer", options, init);
  Communicator alone(connect_self());

  const std::vector<double> losses = follow(divided, all.slice(bounds[rank], bounds[rank + 1]), comm);
  follow(whole, all, alone);
  if (rank == 0) std::cout << "mean squared distance " << losses.front() << ", then " << losses.back() << '\n';
  require(losses.back() < 0.8 * losses.front(), "the codes did not follow the tokens");
  expect_agreement("codes", std::vector<NamedTensor>{{"codes", divided.codebook.codes.value}}, comm);
  require(divided.codebook.codes.value.values() == whole.codebook.codes.value.values(), "one process has other codes");
}

}  // namespace

int main() { run_ranks(3, compare); }
