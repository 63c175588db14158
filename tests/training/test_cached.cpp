// SPDX-License-Identifier: Apache-2.0
// cached_backward against one tape with the whole batch.
#include "tests/support/two_towers.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/activation_checkpoint.h"

using namespace weft;

namespace {

template <class Expected>  // the expected gradient of a parameter of `towers`
void expect_gradients(const Towers& towers, const Gradients& mine, Communicator& comm, Expected expected) {
  const std::vector<Parameter*> parameters = towers.parameters();
  for (size_t p = 0; p < parameters.size(); ++p) expect_close(comm.all_reduce(mine[*parameters[p]]), expected(p));
}

}  // namespace

TEST_CASE("cached_backward gives every parameter the gradient of the whole batch, dropout included", "[r5]") {
  on_ranks([](Communicator& comm) {
    Towers towers, single;
    Gradients whole;
    const double expected = whole_step(single, whole, comm);
    CachedStep step{towers, comm};
    // Every rank has the same number of micro-batches, or only as many as it needs: these towers have no collectives.
    const auto own = static_cast<int64_t>(UnevenBatch::rows(number(comm)).size());
    for (const int64_t micro_batches : {step.batch.count(), std::max<int64_t>(own, 1)})
      for (const Recompute recompute : {Recompute::yes, Recompute::no}) {
        Gradients mine;
        expect_close(scalar(sum_over_ranks(step.run(micro_batches, mine, {}, recompute), comm)), scalar(expected));
        expect_gradients(towers, mine, comm, [&](size_t p) { return whole[*single.parameters()[p]]; });
      }
  });
}

TEST_CASE("cached_backward adds the gradients of a later step to those of the first") {
  on_ranks({2}, [](Communicator& comm) {
    Towers towers, single;
    Gradients mine, whole;
    for (int i = 0; i < 2; ++i) {
      whole_step(single, whole, comm);
      CachedStep{towers, comm}(mine);
    }
    expect_gradients(towers, mine, comm, [&](size_t p) { return whole[*single.parameters()[p]]; });
  });
}

TEST_CASE("cached_backward normalizes each micro-batch over all ranks and updates running statistics once for each") {
  on_ranks([](Communicator& comm) {
    const auto norm = [&] { return std::make_unique<DistributedBatchNorm>("norm", 5, Towers::init, comm); };
    Towers towers(norm()), one(norm());
    Gradients mine, direct;
    const double value = CachedStep{towers, comm}(mine);

    CachedStep step{one, comm};  // the same micro-batches, on one tape
    Tape tape;
    Features images, texts;
    for (int64_t i = 0; i < step.batch.count(); ++i) {
      const Features part = step.encode(i, tape);
      images.push_back(part[0]);
      texts.push_back(part[1]);
    }
    const Var loss = step.loss({concat(images, 0), concat(texts, 0)});
    tape.backward(loss, direct);
    expect_close(scalar(value), loss);
    expect_gradients(towers, mine, comm, [&](size_t p) { return comm.all_reduce(direct[*one.parameters()[p]]); });
    for (const auto average : {&BatchNorm::running_mean, &BatchNorm::running_variance})
      expect_same_bits(((*towers.norm).*average).value, ((*one.norm).*average).value);
  });
}

TEST_CASE("cached_backward accepts any placement of the features and counts them as on one tape") {
  using Placing = std::function<Var(const Var&, Communicator&)>;
  const Placing ways[] = {
      [](auto x, auto&) { return x; },
      [](auto x, auto& comm) { return all_reduce(x, comm); },
      [](auto x, auto& comm) { return all_reduce_equal(x, comm); },
      [](auto x, auto& comm) { return as_partial(x, comm); },
  };
  on_ranks([&](Communicator& comm) {
    const Parameter w("w", data_of(0, {3, 2})), scale("scale", scalar(0.3));
    const Rows rows = {2, 0, 3};  // micro-batches of every rank
    const MicroBatches batch(rows, comm);
    for (const Placing& placement : ways) {
      const auto encode = [&](int64_t i, Tape& tape) -> Features {
        const Var x = matmul(tape.constant(batch.part(data_of(number(comm), {5, 3}), i)), tape.watch(w));
        return {placement(x, comm), x};
      };
      const auto loss = [&](Tape& tape, const Var& f) {
        declare_group(tape, comm);
        return sum(f * replicated_constant(data_of(0, {5, 2}, 1))) * replicated_constant(scalar(2));
      };
      Gradients mine, direct;
      const Tensor value = cached_backward(
          batch.count(), encode, [&](Tape& tape, const Features& all) { return loss(tape, all[0]); }, mine);
      Tape tape;
      Features parts;
      for (int64_t i = 0; i < batch.count(); ++i) parts.push_back(encode(i, tape)[0]);
      const Var expected = loss(tape, concat(parts, 0));
      tape.backward(expected, direct);
      expect_same_bits(value, expected.value());
      expect_close(mine[w], direct[w]);
    }
  });
}

TEST_CASE("cached_backward adds both gradients of a parameter used in encoding and loss") {
  Parameter w("w", Tensor::from({2}, {2, 3}, DType::f64));
  const Tensor x = Tensor::from({3, 2}, {1, 2, 3, 4, 5, 6}, DType::f64);
  const auto encode = [&](int64_t i, Tape& tape) -> Features {
    return {mul_along(tape.constant(x.slice(i, i + 1)), tape.watch(w), -1)};
  };
  Gradients gradients;
  const auto loss = [&](Tape& tape, const Features& all) { return sum(mul_along(all[0], tape.watch(w), -1)); };
  CHECK(cached_backward(3, encode, loss, gradients).item() == 9 * 4 + 12 * 9);
  CHECK(gradients[w].values() == std::vector<double>{2 * 9 * 2, 2 * 12 * 3});
}

TEST_CASE("cached_backward accepts checkpoints in the encoder and features of several types") {
  Parameter w("w", data_of(0, {3, 2})), low("low", data_of(0, {3, 2}, 1).to(DType::bf16));
  const auto gradients_of = [&](bool cached, bool checkpoints) {
    const auto encode = [&](int64_t i, Tape& tape) -> Features {
      const Var x = tape.constant(data_of(7, {4, 3}).slice(2 * i, 2 * i + 2));
      const auto layer = [&](std::span<const Var> v) { return tanh(matmul(v[0], tape.watch(w))); };
      return {checkpoints ? checkpoint(layer, {x}) : layer(std::array{x}),
              square(matmul(cast(x, DType::bf16), tape.watch(low)))};
    };
    const auto loss = [](Tape&, const Features& all) { return sum(square(all[0])) + cast(sum(all[1]), DType::f64); };
    Gradients gradients;
    if (cached) {
      cached_backward(2, encode, loss, gradients);
    } else {
      Tape tape;
      const Features first = encode(0, tape), second = encode(1, tape);
      tape.backward(loss(tape, {concat({first[0], second[0]}, 0), concat({first[1], second[1]}, 0)}), gradients);
    }
    return concat({flatten(gradients[w], 0), flatten(gradients[low].to(DType::f64), 0)}, 0).value();
  };
  const std::vector<double> direct = gradients_of(false, false).values();
  for (const bool checkpoints : {false, true}) {
    const std::vector<double> cached = gradients_of(true, checkpoints).values();
    for (size_t i = 0; i < direct.size(); ++i) CHECK(cached[i] == Approx(direct[i]).epsilon(i < 6 ? 1e-13 : 0.01));
  }
}
