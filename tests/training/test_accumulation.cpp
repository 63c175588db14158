// SPDX-License-Identifier: Apache-2.0
// Micro-batches on several ranks against one process with all samples at once.
#include "tests/support/counted_transport.h"
#include "tests/support/uneven_batch.h"
#include "weft/collectives/nn/distributed_batch_norm.h"
#include "weft/collectives/run_ranks.h"
#include "weft/engine/kernels/scalar_ops.h"
#include "weft/engine/nn/dropout_layer.h"
#include "weft/engine/nn/linear.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"

using namespace weft;

namespace {

const Init init = {.key = {11}, .dtype = DType::f64};
constexpr int64_t width = 3, classes = 4;

Tensor images(int r) { return UnevenBatch::images(r); }
Tensor labels(int r) {
  Tensor y({UnevenBatch::samples(r)}, DType::i64);
  for (int64_t i = 0; i < y.size(); ++i) y.mutate<int64_t>()[i] = (i * i + r) % classes;
  return y;
}

struct Network : Module {
  Linear hidden{"hidden", width, 5, init, {.op = Unary::Tanh}}, out{"out", 5, classes, init};
  Dropout dropout{"dropout", 0.5};
  const std::unique_ptr<BatchNorm> norm;  // if null, dropout
  explicit Network(std::unique_ptr<BatchNorm> batch_norm = nullptr) : norm(std::move(batch_norm)) {
    register_module(hidden);
    register_module(out);
    if (norm) register_module(*norm);
  }
  Var losses(const Var& x, const Tensor& y, const Pass& pass) {
    const Var h = hidden(x);
    return sum(cross_entropy(out(norm ? (*norm)(h, pass) : dropout(h, pass)), constant_like(y, x)));
  }
};

// One step as in a user's program. Returns the loss over all ranks.
double step(Network& network, Gradients& gradients, Communicator& comm) {
  const int me = number(comm);
  const MicroBatches batch(UnevenBatch::rows(me), comm);
  double mine = 0;
  for (int64_t i = 0; i < batch.count(); ++i) {
    Tape tape;
    Pass pass = training;
    pass.first_sample = batch.first_sample(i);
    const Var losses = network.losses(tape.constant(batch.part(images(me), i)), batch.part(labels(me), i), pass);
    const Var loss = share(losses, batch.samples(), comm);
    mine += loss.value().item();
    tape.backward(loss, gradients);
  }
  return sum_over_ranks(mine, comm);
}

void expect_same_gradients(const Network& network, const Gradients& mine, const Network& single, const Gradients& whole,
                           Communicator& comm) {
  for (size_t p = 0; p < network.parameters().size(); ++p)
    expect_close(comm.all_reduce(mine[*network.parameters()[p]]), whole[*single.parameters()[p]]);
}

}  // namespace

TEST_CASE("uneven and empty micro-batches give the loss and gradients of the whole batch", "[r32]") {
  on_ranks([](Communicator& comm) {
    Network network, single;
    Gradients mine, whole;
    const double loss = step(network, mine, comm);
    Tape tape;
    const Tensor x = everyones(comm, images), y = everyones(comm, labels);
    const Var expected = single.losses(tape.constant(x), y, training) / static_cast<double>(y.size());
    tape.backward(expected, whole);
    expect_close(scalar(loss), expected);
    expect_same_gradients(network, mine, single, whole, comm);
  });
}

TEST_CASE("ranks without samples take part in the batch norm of every micro-batch") {
  on_ranks([](Communicator& comm) {
    Network network(std::make_unique<DistributedBatchNorm>("norm", 5, init, comm));
    Network single(std::make_unique<BatchNorm>("norm", 5, init));
    Gradients mine, whole;
    const double loss = step(network, mine, comm);
    const MicroBatches batch(UnevenBatch::rows(number(comm)), comm);
    double expected = 0;
    for (int64_t i = 0; i < batch.count(); ++i) {
      const auto part = [&](auto of) {
        return everyones(comm, [&](int r) {
          int64_t first = 0;
          for (int64_t j = 0; j < i; ++j) first += batch.rows(j)[static_cast<size_t>(r)];
          return of(r).slice(first, first + batch.rows(i)[static_cast<size_t>(r)]);
        });
      };
      Tape tape;
      const Var losses = single.losses(tape.constant(part(images)), part(labels), training);
      const Var term = losses / static_cast<double>(batch.samples());
      expected += term.value().item();
      tape.backward(term, whole);
    }
    expect_close(scalar(loss), scalar(expected));
    expect_same_gradients(network, mine, single, whole, comm);
    for (const auto p : {&BatchNorm::running_mean, &BatchNorm::running_variance}) {
      expect_close(((*network.norm).*p).value, ((*single.norm).*p).value);
      expect_same_bits(((*network.norm).*p).value, comm.broadcast(((*network.norm).*p).value, {0}));
    }
  });
}

TEST_CASE("a global batch without samples has zero loss and zero gradients") {
  on_ranks([](Communicator& comm) {
    const MicroBatches batch(number(comm) == 0 ? Rows{} : Rows{0}, comm);
    expect(batch.count() == 1 && batch.samples() == 0, "there is one micro-batch, without samples");
    Network network;
    Gradients gradients;
    Tape tape;
    const Var x = tape.constant(batch.part(Tensor({0, width}, DType::f64), 0));
    const Var loss = share(network.losses(x, Tensor({0}, DType::i64), training), batch.samples(), comm);
    tape.backward(loss, gradients);
    expect(sum_over_ranks(loss.value().item(), comm) == 0, "the loss is zero");
    for (const Parameter* p : network.parameters())
      expect_same_bits(gradients[*p], Tensor::zeros(p->value.shape(), DType::f64));
  });
}

TEST_CASE("samples are numbered rank by rank, and on each rank in the order of its micro-batches") {
  run_ranks(3, [](Communicator& comm) {
    const MicroBatches batch(UnevenBatch::rows(number(comm)), comm);
    expect(batch.count() == 4 && batch.samples() == 13, "four micro-batches of 13 samples");
    expect(batch.rows() == Rows{7, 6, 0}, "7, 6 and none");
    expect(batch.rows(1) == Rows{2, 1, 0} && batch.rows(3) == Rows{0, 2, 0}, "each rank's in its place");
    const int64_t first[3][4] = {{0, 3, 5, 7}, {7, 7, 8, 11}, {13, 13, 13, 13}};
    for (int64_t i = 0; i < 4; ++i) expect(batch.first_sample(i) == first[number(comm)][i], "where each begins");
    if (number(comm) == 1) expect_same_bits(batch.part(images(1), 2), images(1).slice(1, 4));
  });
}

TEST_CASE("any number of micro-batches costs two collectives per step, and one more for the loss value") {
  run_ranks(3, [](std::unique_ptr<Transport> transport) {
    int collectives = 0;
    Communicator comm(std::make_unique<CountedTransport>(std::move(transport), collectives));
    Network network;
    Gradients gradients;
    step(network, gradients, comm);
    expect(collectives == 3, "a step has " + text(collectives) + " collectives");
  });
}

TEST_CASE("invalid micro-batches and shares of a loss are refused") {
  on_ranks([](Communicator& comm) {
    const MicroBatches batch({2, 1}, comm);
    expect_refusal([&] { batch.rows(2); }, {"MicroBatches: there is no micro-batch 2 of 2"});
    expect_refusal([&] { batch.part(Tensor({4}), 0); }, {"MicroBatches: a tensor (4) for this rank's 3 samples"});
    expect_refusal([&] { share(Tensor({2}), 3, comm); }, {"share: a sum of losses is a scalar, not (2)"});
    expect_refusal([&] { share(scalar(1), -1, comm); }, {"share: of -1 samples"});
    expect_refusal([&] { MicroBatches({1, -2}, comm); }, {"MicroBatches: rank 0 has -2 rows in micro-batch 1"});
  });
}
