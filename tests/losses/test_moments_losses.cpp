// SPDX-License-Identifier: Apache-2.0
// Losses of global statistics against one process, for ranks with different distributions; their state, refusals and
// costs.
#include "tests/cases/losses/loss_case.h"
#include "tests/support/counted_transport.h"
#include "tests/support/distributed_checks.h"
#include "tests/support/unlike_ranks.h"
#include "weft/collectives/checks/debug.h"
#include "weft/collectives/placement_conversions.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/common/moments.h"
#include "weft/losses/statistics/barlow_twins.h"
#include "weft/losses/statistics/koleo.h"
#include "weft/losses/statistics/sigreg.h"
#include "weft/losses/statistics/tico.h"
#include "weft/losses/statistics/vicreg.h"

using namespace weft;

namespace {

const Init f64 = {.key = {1}, .dtype = DType::f64};
constexpr SigregOptions few = {.directions = 5, .knots = 4};
constexpr Random key = {8};

const char* const names[] = {"Barlow Twins", "VICReg", "TiCo", "SIGReg", "LeJEPA", "KoLeo"};
template <class F> void for_each_case(F f) {
  int found = 0;
  for (const LossCase* c : LossCase::all())
    for (const char* name : names)
      if (c->name == name) f(*c), ++found;
  require(found >= 7, "only ", found, " cases are there");
}

}  // namespace

TEST_CASE("moments over ranks equal those of all rows in one process, for rows that differ by rank") {
  on_ranks({1, 2, 3, 5, 8}, [](Communicator& comm) {
    for (const Rows& rows : divisions(comm.size())) {
      const auto part = [&](int use) { return [=](int r, int64_t n) { return unlike(r, {3}, n, use); }; };
      Tape tape;
      const int64_t own = mine(rows, comm);
      const Var a = tape.constant(part(0)(number(comm), own)), b = tape.constant(part(1)(number(comm), own));
      const Moments m = moments({a, b}, {{0, 1}, {1, 1}}, comm);
      const Var x = whole(rows, part(0)), y = whole(rows, part(1));
      const double count = static_cast<double>(x.shape()[0]);
      const auto centered = [](const Var& v) { return sub_along(v, mean(v, 0), -1); };
      expect(m.count == x.shape()[0], "rows are counted");
      expect_close(m.means[0], mean(x, 0));
      expect_close(m.variances[1], variance(y, 0));
      expect_close(m.covariances[0], matmul(transpose(centered(x)), centered(y)) / count);
      expect_close(m.covariances[1], matmul(transpose(centered(y)), centered(y)) / count);
      for (const Var& v : {m.means[1], m.variances[0], m.covariances[0]}) {
        expect(placement_of(v, comm) == Placement::invariant, "a moment is " + text(placement_of(v, comm)));
        expect_same_bits(v.value(), comm.broadcast(v.value(), {0}));
      }
    }
  });
}

TEST_CASE("moments lose no digit if the mean is 1e8 standard deviations") {
  on_ranks([](Communicator& comm) {
    for (const Rows& rows : divisions(comm.size())) {
      // Multiples of 2^-24, so that shifting them is exact.
      const Tensor near = data_of(number(comm), {mine(rows, comm), 3}, 0, DType::f32).to(DType::f64);
      const Moments m = moments({Var(near)}, {{0, 0}}, comm);
      const Moments far = moments({affine(near, 1, 0x1p27)}, {{0, 0}}, comm);
      expect_close(far.variances[0], m.variances[0]);
      expect_close(far.covariances[0], m.covariances[0]);
    }
  });
}

TEST_CASE("losses of global statistics equal one process, in value and gradients, for rows that differ by rank") {
  on_ranks({1, 2, 3, 5, 8}, [](Communicator& comm) {
    for (const Rows& rows : divisions(comm.size()))
      for_each_case([&](const LossCase& c) {
        if (c.variant == "three nearest") return;  // it needs more samples
        Tape one, tape;
        LossCase::Inputs all = {{}, {}, 0, std::accumulate(rows.begin(), rows.end(), int64_t{0})};
        LossCase::Inputs part = {{}, {}, before(rows, comm), all.total};
        for (const Shape& row : c.drawn.rows) {
          const int use = static_cast<int>(all.rows.size());
          all.rows.push_back(one.watch(whole(rows, [&](int r, int64_t n) { return unlike(r, row, n, use); })));
          part.rows.push_back(tape.watch(unlike(number(comm), row, mine(rows, comm), use)));
        }
        const Var expected = c.whole(all), share = c.share(part, comm);
        expect_close(scalar(loss_of(share, comm)), expected);
        const auto wanted = one.gradient(expected, {all.rows.begin(), all.rows.end()});
        const auto got = tape.gradient(share, {part.rows.begin(), part.rows.end()});
        for (size_t i = 0; i < got.size(); ++i)
          expect_close(got[i], slice(wanted[i], 0, part.first, part.first + mine(rows, comm)));
      });
  });
}

TEST_CASE("values that losses of global statistics treat as equal on all ranks are bit-identical") {
  on_ranks([](Communicator& comm) {
    for_each_case([&](const LossCase& c) {
      Tape tape;
      const DebugRanks debug(tape, comm);
      const std::vector<Var> inputs = inputs_of(c.distributed, comm, tape);
      tape.gradient(c.distributed.call(inputs, comm), inputs);
    });
  });
}

// S10: the statistic is summed by a collective outside of autograd, and every rank computes the same loss from it.
TEST_CASE("a sum over ranks that the tape takes for a constant gives the right value and 1/W of the gradient") {
  on_ranks({2, 3, 5}, [](Communicator& comm) {
    Tape tape;
    const Var x = tape.watch(unlike(number(comm), {3}, 4));
    const auto penalty = [&](const Var& products) { return sum(square(products)); };
    const Var products = matmul(x, x, Transpose::yes, Transpose::no);
    const Tensor others = (Var(comm.all_reduce(detach(products).value())) - Var(products.value())).value();
    const Var raw = penalty(products + Var(others)),
              exact = counted_once(penalty(global_sums({{products}}, comm)[0]), comm);
    const double ranks = comm.size();
    expect_close(raw.value(), scalar(loss_of(exact, comm)));
    expect_close(tape.gradient(raw, Var(scalar(1 / ranks)), {x})[0], tape.gradient(exact, {x})[0] / ranks);
  });
}

// S12: upstream normalizes each rank's rows by their own mean and deviation.
TEST_CASE("Barlow Twins normalized per rank is another loss, unless all ranks have equal moments") {
  on_ranks({2, 3, 5}, [](Communicator& comm) {
    const auto alone = [](const Var& x) { return mul_along(sub_along(x, mean(x, 0), -1), rsqrt(variance(x, 0)), -1); };
    const auto difference = [&](const Var& a, const Var& b) {
      const BarlowTwinsOptions exact = {.epsilon = 0};
      return std::abs(loss_of(barlow_twins(a, b, exact, comm), comm) /
                          loss_of(barlow_twins(alone(a), alone(b), exact, comm), comm) -
                      1);
    };
    expect(difference(data_of(0, {6, 3}), data_of(0, {6, 3}, 1)) < 1e-12, "equal shards have equal moments");
    expect(difference(unlike(number(comm), {3}, 6), unlike(number(comm), {3}, 6, 1)) > 0.01, "S12 is not seen");
  });
}

TEST_CASE("a variance of a single global sample is refused on every rank") {
  on_ranks([](Communicator& comm) {
    for (const int64_t count : {0, 1}) {
      const Tensor x = data_of(0, {number(comm) == 0 ? count : 0, 3});
      const std::string said = "the batch of all ranks has " + std::to_string(count) + " samples";
      expect_refusal([&] { vicreg(x, x, {}, comm); }, {"vicreg: ", said.c_str(), "needs at least two"});
      expect_refusal([&] { barlow_twins(x, x, {}, comm); }, {"barlow_twins: ", said.c_str(), "needs at least two"});
    }
    const Tensor two = data_of(0, {number(comm) == 0 ? 2 : 0, 3});
    loss_of(vicreg(two, two, {}, comm), comm);
    loss_of(barlow_twins(two, two, {}, comm), comm);
  });
}

TEST_CASE("losses that need no variance are defined for batches of zero and one sample") {
  on_ranks([](Communicator& comm) {
    const Tensor none({0, 3}, DType::f64), one = data_of(0, {number(comm) == comm.size() - 1 ? 1 : 0, 3});
    Tico tico("tico", 3, f64);
    expect_refusal([&] { tico(none, none, {}, comm); }, {"Tico: the batch of all ranks is empty"});
    expect_close(scalar(loss_of(tico(one, one, {}, comm), comm)), scalar(8 * 0.1));  // a'(0.1 aa')a = 0.1
    expect(loss_of(sigreg(none, key, few, comm), comm) == 0, "SIGReg of nothing");
    expect(loss_of(sigreg(one, key, few, comm), comm) > 0, "SIGReg of one sample");
    expect(loss_of(koleo(none, {}, comm), comm) == 0, "KoLeo of nothing");
    expect(loss_of(koleo(one, {}, comm), comm) == 0, "KoLeo of one sample");
  });
}

TEST_CASE("losses of global statistics refuse bad input with the shapes") {
  run_ranks(1, [](Communicator& comm) {
    const Tensor x = data_of(0, {4, 3}), wide = data_of(0, {4, 5}), flat = data_of(0, {12});
    Tico tico("head.tico", 3, f64);
    expect_refusal([&] { vicreg(x, wide, {}, comm); }, {"vicreg: two views", "(4, 3) and (4, 5)"});
    expect_refusal([&] { barlow_twins(flat, flat, {}, comm); }, {"barlow_twins: two views", "(12)"});
    expect_refusal([&] { vicreg(x, x.to(DType::f32), {}, comm); }, {"vicreg: features of one floating type", "f32"});
    expect_refusal([&] { tico(wide, wide, {}, comm); }, {"Tico: 'head.tico.covariance' is f64 (3, 3)", "f64 (4, 5)"});
    expect_refusal([&] { koleo(flat, {}, comm); }, {"koleo: features", "(12)"});
    expect_refusal([&] { koleo(x, {.neighbours = 0}, comm); }, {"koleo: 0 neighbours"});
    expect_refusal([&] { sigreg(flat, key, few, comm); }, {"sigreg: features", "(12)"});
    expect_refusal([&] { sigreg(x, key, {.knots = 1}, comm); }, {"sigreg: 1024 directions, 1 knots"});
    expect_refusal([&] { lejepa(x, x, key, {}, comm); }, {"lejepa: global views", "(4, 3) and (4, 3)"});
  });
}

TEST_CASE("losses of global statistics of bf16 features use f32 statistics") {
  on_ranks({1, 3}, [](Communicator& comm) {
    const Tensor x = data_of(number(comm), {40, 3}).to(DType::bf16),
                 y = data_of(number(comm), {40, 3}, 1).to(DType::bf16);
    const auto shares = [&](const Tensor& a, const Tensor& b) {
      Tico tico("tico", 3, {.key = {}, .dtype = DType::f32});
      return std::vector<Var>{vicreg(a, b, {}, comm), barlow_twins(a, b, {}, comm), tico(a, b, {}, comm),
                              sigreg(a, key, few, comm), koleo(a, {}, comm)};
    };
    const std::vector<Var> low = shares(x, y), high = shares(x.to(DType::f32), y.to(DType::f32));
    for (size_t i = 0; i < low.size(); ++i) expect_same_bits(low[i].value(), high[i].value());
  });
}

TEST_CASE("the number of collectives in losses of global statistics does not depend on the batch") {
  run_ranks(3, [](std::unique_ptr<Transport> transport) {
    int collectives = 0;
    Communicator comm(std::make_unique<CountedTransport>(std::move(transport), collectives));
    Tico tico("tico", 3, f64);
    const auto cost = [&](const std::string& name, int forward, int backward, auto loss) {
      Tape tape;
      const Var x = tape.watch(data_of(number(comm), {number(comm) * 2, 3}));
      collectives = 0;
      const Var share = loss(x, x * x);
      expect(collectives == forward, name + " has " + text(collectives) + " collectives forward");
      collectives = 0;
      tape.gradient(share, {x});
      expect(collectives == backward, name + " has " + text(collectives) + " collectives backward");
    };
    cost("Barlow Twins", 2, 1, [&](const Var& a, const Var& b) { return barlow_twins(a, b, {}, comm); });
    cost("VICReg", 2, 1, [&](const Var& a, const Var& b) { return vicreg(a, b, {}, comm); });
    cost("TiCo", 1, 0, [&](const Var& a, const Var& b) { return tico(a, b, {}, comm); });
    cost("SIGReg", 1, 1, [&](const Var& a, const Var&) { return sigreg(a, key, few, comm); });
    cost("KoLeo", 2, 1, [&](const Var& a, const Var&) { return koleo(a, {}, comm); });
    const KoleoOptions alone = {.among = Neighbours::of_own_rank};
    cost("KoLeo alone", 1, 0, [&](const Var& a, const Var&) { return koleo(a, alone, comm); });
  });
}
