// SPDX-License-Identifier: Apache-2.0
// Sinkhorn over ranks, and the losses that assign samples to prototypes: state, special values and refusals.
#include <numeric>

#include "tests/support/counted_transport.h"
#include "tests/support/on_ranks.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/collectives/run_ranks.h"
#include "weft/collectives/share.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/assignment/dino.h"
#include "weft/losses/assignment/msn.h"
#include "weft/losses/assignment/sinkhorn.h"
#include "weft/losses/assignment/swapped_prediction.h"
#include "weft/losses/assignment/swav.h"

using namespace weft;

namespace test_assignment_losses {

const Init f64 = {.key = {1}, .dtype = DType::f64};
constexpr Pass training = {.training = true};

// Divisions of twelve samples: unevenly with empty ranks, or all on the last rank.
std::vector<Rows> divisions(int ranks) {
  const auto n = static_cast<size_t>(ranks);
  Rows uneven(n, 0), last(n, 0);
  for (int64_t i = 0; i < 12; ++i) ++uneven[static_cast<size_t>(std::array{0, 2, 4, 0, 7, 2}[i % 6]) % n];
  last.back() = 12;
  return {uneven, last};
}
Tensor mine(const Tensor& all, const Rows& rows, const Communicator& comm) {
  const auto me = rows.begin() + number(comm);
  const int64_t first = std::accumulate(rows.begin(), me, int64_t{0});
  return all.slice(first, first + *me);
}
Tensor twelve(int64_t width, int use, DType dtype = DType::f64) { return data_of(0, {12, width}, use, dtype); }

double whole(const Var& share, Communicator& comm) { return sum_over_ranks(share.value().item(), comm); }

TEST_CASE("Sinkhorn codes equal those of one process for any division, also for several matrices at once") {
  on_ranks({1, 2, 3, 5, 8}, [](Communicator& comm) {
    for (const Rows& rows : divisions(comm.size())) {
      const Tensor first = affine(twelve(4, 1), 20, 0).value(), second = twelve(4, 2);
      std::vector<Tensor> expected;
      run_ranks(1, [&](Communicator& alone) {
        for (const Tensor& logits : {first, second}) expected.push_back(sinkhorn({logits}, 3, alone)[0]);
      });
      const auto codes = sinkhorn({mine(first, rows, comm), mine(second, rows, comm)}, 3, comm);
      for (size_t i : {0, 1}) expect_close(codes[i], mine(expected[i], rows, comm));
    }
  });
}

TEST_CASE("Sinkhorn codes of a sample sum to one, and all prototypes are used equally over the ranks in the limit") {
  on_ranks({1, 3, 5}, [](Communicator& comm) {
    const Rows rows = divisions(comm.size())[0];
    const Tensor codes = sinkhorn({mine(affine(twelve(4, 1), 3, 0).value(), rows, comm)}, 200, comm)[0];
    expect_close(sum(codes, 1), Tensor::full({codes.shape()[0]}, 1, DType::f64));
    expect_close(comm.all_reduce(sum(codes, 0).value()), Tensor::full({4}, 3, DType::f64));
    const Tensor logits = mine(twelve(4, 1), rows, comm);
    expect_same_bits(sinkhorn({logits}, 0, comm)[0], softmax(logits).value());
  });
}

TEST_CASE("Sinkhorn codes are finite for very large or very different scores") {
  on_ranks({1, 2, 3}, [](Communicator& comm) {
    const Rows rows = divisions(comm.size())[0];
    for (const double scale : {1e3, 1e30}) {
      // No sample chooses the last prototype: its column vanishes beside the others.
      Tensor logits = affine(twelve(4, 3, DType::f32), scale, scale).value();
      for (int64_t i = 0; i < 12; ++i) logits.mutate<float>()[4 * i + 3] = static_cast<float>(-scale * 1e3);
      const Tensor codes = sinkhorn({mine(logits, rows, comm)}, 3, comm)[0];
      for (const double q : codes.values()) expect(q >= 0 && q <= 1, "a code of " + std::to_string(q));
      const Tensor used = comm.all_reduce(sum(codes, 0).value());
      expect(used.values()[3] > 0.1, "the last prototype is unused: " + text(used));
    }
  });
}

TEST_CASE("an iteration of Sinkhorn costs two collectives for any number of samples and matrices") {
  for (const int64_t samples : {0, 2})
    CHECK_NOTHROW(run_ranks(3, [=](std::unique_ptr<Transport> transport) {
      int collectives = 0;
      Communicator comm(std::make_unique<CountedTransport>(std::move(transport), collectives));
      const Tensor logits = data_of(number(comm), {number(comm) == 1 ? 0 : samples, 3});
      sinkhorn({logits, logits, logits}, 4, comm);
      expect(collectives == 8, text(collectives) + " collectives");
    }));
}

TEST_CASE("Sinkhorn codes have no gradient, and predictions of other crops have one") {
  on_ranks([](Communicator& comm) {
    Tape tape;
    const Rows rows = divisions(comm.size())[0];
    const Var high = tape.watch(mine(twelve(4, 1), rows, comm)), low = tape.watch(mine(twelve(4, 2), rows, comm));
    const auto g = tape.gradient(swav({high}, {low}, {}, comm), {high, low});
    expect_same_bits(g[0].value(), Tensor::zeros(high.shape(), DType::f64));
    // The gradient of -q log p with respect to the logits, (p - q) / temperature, sums to zero in each row and is not
    // zero.
    expect_close(sum(g[1], 1), Tensor::zeros({low.shape()[0]}, DType::f64));
    expect(comm.all_reduce(sum(abs(g[1])).value()).item() > 0.1, text(g[1].value()));
  });
}

TEST_CASE("swapped_cross_entropy skips pairs of a view with its own target") {
  const Tensor certain = Tensor::from({1, 2}, {1, 0}), logits = Tensor::from({1, 2}, {0, 40}, DType::f32);
  const std::vector<Tensor> targets = {certain, certain};
  const std::vector<Var> same = {logits, logits}, more = {logits, logits, logits};
  CHECK(swapped_cross_entropy(targets, same).value().item() == 80);
  CHECK(swapped_cross_entropy(targets, more).value().item() == 160);
  CHECK(swapped_pairs(2, 2) == 2);
  CHECK(swapped_pairs(2, 10) == 18);
  CHECK(swapped_pairs(1, 1) == 0);
}

TEST_CASE("MSN's regularizer is zero for equal use of prototypes, and not if a power law is the prior") {
  on_ranks({1, 2, 3}, [](Communicator& comm) {
    Tape tape;
    // Each rank's samples are all at one prototype; use is equal only over all ranks.
    const int64_t me = number(comm), ranks = comm.size();
    Tensor prototypes = Tensor::zeros({ranks, ranks}, DType::f64);
    for (int64_t i = 0; i < ranks; ++i) prototypes.mutate<double>()[i * ranks + i] = 1;
    const Var anchor = tape.watch(prototypes.slice(me, me + 1)), same = replicated_constant(prototypes);
    const auto loss = [&](MsnOptions options) {
      options.iterations = 0;
      return whole(msn({anchor}, anchor, same, options, comm), comm);
    };
    const double alone = loss({.regularization_weight = 0});
    expect_close(scalar(loss({})), scalar(alone));
    expect_close(scalar(loss({.power_law = 0})), scalar(alone));
    double entropy = 0, total = 0;
    for (int64_t k = 1; k <= ranks; ++k) total += 1 / static_cast<double>(k);
    for (int64_t k = 1; k <= ranks; ++k) {
      const double r = 1 / static_cast<double>(k) / total;
      entropy -= r * std::log(r);
    }
    const double divergence = std::log(static_cast<double>(ranks)) - entropy;
    expect_close(scalar(loss({.power_law = 1})), scalar(alone + divergence));
    expect_close(scalar(loss({.regularization_weight = 2, .power_law = 1})), scalar(alone + 2 * divergence));
  });
}

TEST_CASE("assignment losses have no gradient for targets and their prototypes") {
  on_ranks({1, 3}, [](Communicator& comm) {
    Tape tape;
    const Rows rows = divisions(comm.size())[0];
    const Var anchors = tape.watch(mine(twelve(3, 1), rows, comm)),
              targets = tape.watch(mine(twelve(3, 2), rows, comm));
    const auto g =
        tape.gradient(msn({anchors}, targets, replicated_constant(twelve(3, 3)), {}, comm), {targets, anchors});
    expect_same_bits(g[0].value(), Tensor::zeros(targets.shape(), DType::f64));
    expect(comm.all_reduce(sum(abs(g[1])).value()).item() > 0.1, "anchors have none either");
  });
}

TEST_CASE("assignment losses of an empty batch are zero with zero gradients") {
  on_ranks({1, 2}, [](Communicator& comm) {
    Tape tape;
    declare_group(tape, comm);
    const Var none = tape.watch(Tensor({0, 3}, DType::f64));
    const Var prototypes = with_placement(tape.watch(twelve(3, 1)), comm, Placement::replicated);
    Dino dino("dino", 3, f64);
    const Var loss = swav({none}, {none}, {}, comm) + msn({none}, none, prototypes, {}, comm) +
                     dino({none}, {none, none}, training, comm);
    expect_same_bits(loss.value(), scalar(0));
    expect_close(tape.gradient(loss, {none, prototypes})[1], Tensor::zeros({12, 3}, DType::f64));
  });
}

TEST_CASE("assignment losses of bf16 inputs are computed in f32") {
  on_ranks({1, 3}, [](Communicator& comm) {
    Tape tape;
    const Var x = tape.watch(mine(twelve(3, 1), divisions(comm.size())[0], comm).to(DType::bf16));
    const Var prototypes = replicated_constant(twelve(3, 2).to(DType::bf16));
    Dino dino("dino", 3, {.key = {1}});
    for (const Var& loss :
         {swav({x}, {x}, {}, comm), msn({x}, x, prototypes, {}, comm), dino({x}, {x, x}, training, comm)}) {
      expect(loss.dtype() == DType::f32, text(loss.dtype()));
      expect(tape.gradient(loss, {x})[0].dtype() == DType::bf16, "the gradient");
    }
  });
}

// Training steps with two passes each over the given numbers of samples; the third step has none.
Tensor teacher_of(int step, int view) {
  return step == 2 ? Tensor({0, 4}, DType::f32) : twelve(4, 10 * step + view, DType::f32);
}
Tensor center_after(int steps, int division, Communicator& comm) {
  Dino dino("dino", 4, {.key = {1}}, {.center_momentum = 0.8});
  for (int step = 0; step < steps; ++step) {
    for (const int view : {0, 2}) {  // the first views of each pass
      Vars teacher;
      for (const int v : {view, view + 1}) {
        const Tensor all = teacher_of(step, v);
        const Rows rows = all.size() == 0 ? Rows(static_cast<size_t>(comm.size()), 0)
                                          : divisions(comm.size())[static_cast<size_t>(division)];
        teacher.push_back(mine(all, rows, comm));
      }
      dino(teacher, teacher, training, comm);
      const Tensor other = Tensor::full({2, 4}, 100);
      dino({other}, {other, other}, {}, comm);  // evaluation does not count
    }
    dino.update(comm);
  }
  return dino.center.value;
}

TEST_CASE("DINO's center has the same bits on every rank, and equals one process for any division") {
  on_ranks({1, 2, 3, 5}, [](Communicator& comm) {
    Var expected = Tensor::zeros({4}, DType::f64);
    for (const int step : {0, 1, 3, 4}) {
      std::vector<Var> views;
      for (const int view : {0, 1, 2, 3}) views.push_back(teacher_of(step, view).to(DType::f64));
      expected = expected * 0.8 + mean(concat(views, 0), 0) * 0.2;
    }
    for (const int division : {0, 1}) {
      const Tensor center = center_after(5, division, comm);
      expect_same_bits(center, comm.broadcast(center, {0}));
      expect(max(abs(Var(center.to(DType::f64)) - expected)).value().item() < 2e-7, text(center));
    }
  });
}

TEST_CASE("DINO's center changes only in update, and a checkpoint's recomputation does not count") {
  on_ranks({1, 2}, [](Communicator& comm) {
    const auto step = [&](auto pass) {
      Dino dino("dino", 4, f64);
      Tape tape;
      const Var student = tape.watch(data_of(number(comm), {3, 4}));
      const Vars teacher = {data_of(number(comm), {3, 4}, 1)};
      const Var loss = pass(dino, teacher, student);
      dino({data_of(number(comm), {2, 4}, 2)}, {data_of(0, {2, 4}), data_of(0, {2, 4}, 3)}, training, comm);
      expect_same_bits(dino.center.value, Tensor::zeros({4}, DType::f64));
      const Tensor g = tape.gradient(loss, {student})[0].value();
      dino.update(comm);
      const Tensor center = dino.center.value;
      dino.update(comm);  // without new samples
      expect_same_bits(dino.center.value, center);
      expect(dino.buffers() == std::vector<Parameter*>{&dino.center}, "the center is no buffer");
      expect(dino.parameters().empty(), "the center is a parameter");
      return std::pair{g, center};
    };
    const auto direct = step([&](Dino& dino, const Vars& t, const Var& s) { return dino(t, {s, s}, training, comm); });
    const auto again = step([&](Dino& dino, const Vars& t, const Var& s) {
      return checkpoint([&](std::span<const Var> x) { return dino(t, {x[0], x[0]}, training, comm); }, {s});
    });
    expect_same_bits(again.first, direct.first);
    expect_same_bits(again.second, direct.second);
    expect(sum(abs(direct.second)).value().item() > 0, "the center has not moved");
  });
}

TEST_CASE("DINO's center counts the only sample of a rank, and stays before any") {
  on_ranks({1, 2, 3}, [](Communicator& comm) {
    Dino dino("dino", 4, f64, {.center_momentum = 0.5});
    dino.update(comm);
    expect_same_bits(dino.center.value, Tensor::zeros({4}, DType::f64));
    const Tensor only = data_of(number(comm), {1, 4});
    dino({only}, {only, only}, training, comm);
    dino.update(comm);
    expect_close(dino.center.value, Var(comm.all_reduce(only.reshape({4}), ReduceOp::mean)) * 0.5);
  });
}

TEST_CASE("assignment losses refuse bad input and say why") {
  on_ranks({1, 2}, [](Communicator& comm) {
    const Var four = Tensor::zeros({4, 3}, DType::f64), wide = Tensor::zeros({4, 5}, DType::f64),
              few = Tensor::zeros({2, 3}, DType::f64);
    expect_refusal([&] { sinkhorn({four.value(), wide.value()}, 3, comm); }, {"sinkhorn: logits are", "(4, 5)"});
    expect_refusal([&] { sinkhorn({four.value()}, -1, comm); }, {"sinkhorn: -1 iterations"});
    expect_refusal([&] { swav({}, {four}, {}, comm); }, {"swav: there is no crop of high resolution"});
    expect_refusal([&] { swav({four}, {}, {}, comm); }, {"swav: 1 views with targets and 1 in all"});
    expect_refusal([&] { swav({four, few}, {}, {}, comm); }, {"swav: ", "(4, 3)", "(2, 3)"});
    expect_refusal([&] { swav({four}, {few}, {}, comm); }, {"swav: all views", "(4, 3)", "(2, 3)"});
    expect_refusal([&] { swav({four}, {four}, {}, comm, {four, four}); }, {"swav: 2 queues for 1"});
    expect_refusal([&] { swav({four}, {four}, {.epsilon = 0}, comm); },
                   {"swav: the epsilon is 0, but must be positive and finite"});
    expect_refusal([&] { msn({}, four, four, {}, comm); }, {"msn: there are no anchors"});
    expect_refusal([&] { msn({few}, four, four, {}, comm); }, {"msn: anchors (2, 3) for targets (4, 3)"});
    expect_refusal([&] { msn({four}, four, wide, {}, comm); }, {"msn: targets (4, 3)", "prototypes (4, 5)"});
    expect_refusal([&] { msn({four}, four, four, {.temperature = 0}, comm); },
                   {"msn: the temperature is 0, but must be positive and finite"});
    Dino dino("dino", 3, f64);
    expect_refusal([&] { dino({wide}, {four, four}, training, comm); }, {"Dino: the center has 3 classes", "(4, 5)"});
    expect_refusal([&] { dino({four}, {four}, training, comm); }, {"Dino: 1 views with targets and 1 in all"});
    expect_refusal([&] { dino({}, {four}, training, comm); }, {"Dino: 0 views of the teacher and 1 of the student"});
    expect_refusal([&] { dino({four}, {four, few}, training, comm); }, {"Dino: all views", "(2, 3)", "(4, 3)"});
  });
}

}  // namespace test_assignment_losses
