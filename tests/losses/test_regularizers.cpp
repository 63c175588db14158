// SPDX-License-Identifier: Apache-2.0
// TiCo's state, SIGReg's directions and KoLeo's neighbours.
#include <numbers>

#include "tests/support/unlike_ranks.h"
#include "weft/engine/ops/activation_checkpoint.h"
#include "weft/engine/ops/matmul.h"
#include "weft/engine/ops/normalize.h"
#include "weft/engine/ops/reduce.h"
#include "weft/losses/statistics/koleo.h"
#include "weft/losses/statistics/sigreg.h"
#include "weft/losses/statistics/tico.h"

using namespace weft;

namespace test_regularizers {

const Init f64 = {.key = {1}, .dtype = DType::f64};
constexpr Random key = {8};

TEST_CASE("TiCo's covariance has the same bits on every rank and is that of one process up to rounding") {
  on_ranks({1, 2, 3, 5, 8}, [](Communicator& comm) {
    for (const Rows& rows : divisions(comm.size())) {
      Tico tico("tico", 3, f64);
      Tensor expected = Tensor::zeros({3, 3}, DType::f64);
      for (int step = 0; step < 20; ++step) {
        std::vector<Var> seen;
        for (int pass = 0; pass <= step % 3; ++pass) {
          const auto part = [&](int r, int64_t n) { return unlike(r, {3}, n, 3 * step + pass); };
          const Tensor x = part(number(comm), mine(rows, comm));
          tico(x, x, {.training = true}, comm);
          const Tensor other = unlike(number(comm), {3}, 2, 77);
          tico(other, other, {}, comm);  // evaluation changes nothing
          seen.push_back(l2_normalize(whole(rows, part)));
        }
        tico.update();
        const Var all = concat(seen, 0);
        expected =
            (Var(expected) * 0.9 + matmul(transpose(all), all) * (0.1 / static_cast<double>(all.shape()[0]))).value();
      }
      expect_close(tico.covariance.value, expected);
      expect_same_bits(tico.covariance.value, comm.broadcast(tico.covariance.value, {0}));
      expect(tico.buffers().size() == 1 && tico.parameters().empty(), "the covariance is a buffer");
    }
  });
}

TEST_CASE("TiCo under a checkpoint counts a batch once and has the same gradient") {
  on_ranks([](Communicator& comm) {
    Tico plain("tico", 3, f64), again("tico", 3, f64);
    for (int step = 0; step < 3; ++step) {
      const auto gradient = [&](auto call) {
        Tape tape;
        const Var x = tape.watch(data_of(number(comm), {4, 3}, step));
        return tape.gradient(call(x), {x})[0].value();
      };
      const auto loss = [&](Tico& tico, const Var& x) { return tico(x, x * x, {.training = true}, comm); };
      const Tensor direct = gradient([&](const Var& x) { return loss(plain, x); });
      const Tensor saved = gradient(
          [&](const Var& x) { return checkpoint([&](std::span<const Var> v) { return loss(again, v[0]); }, {x}); });
      expect_same_bits(saved, direct);
      const Tensor more = unlike(number(comm), {3}, 2, step);  // this batch shows how often the others were counted
      for (Tico* tico : {&plain, &again}) (*tico)(more, more, {.training = true}, comm);
      plain.update();
      again.update();
      expect_same_bits(again.covariance.value, plain.covariance.value);
    }
  });
}

TEST_CASE("SIGReg's directions depend on the key alone, not on the number of ranks") {
  on_ranks([](Communicator& comm) {
    const Tensor x = data_of(0, {9, 3}), mine = x.slice(number(comm) == 0 ? 0 : 9, 9);
    const SigregOptions two = {.directions = 2};
    const double statistic = loss_of(sigreg(mine, key, two, comm), comm);
    run_ranks(1, [&](Communicator& alone) { expect_close(scalar(statistic), sigreg(x, key, two, alone)); });
    expect(std::abs(statistic - loss_of(sigreg(mine, {9}, two, comm), comm)) > 1e-6, "another key");
  });
}

TEST_CASE("SIGReg distinguishes a standard normal from shifted, narrow and collapsed samples") {
  on_ranks({1, 3}, [](Communicator& comm) {
    const Tensor x = Tensor::normal({200, 4}, {4, static_cast<uint64_t>(number(comm))}, 0, 1, DType::f64);
    const auto statistic = [&](const Var& v) { return loss_of(sigreg(v, key, {.directions = 32}, comm), comm); };
    const double normal = statistic(x);
    expect(normal < 2, "a normal sample has " + std::to_string(normal));
    expect(statistic(affine(x, 1, 0.5)) > 5 * normal, "shifted");
    expect(statistic(x * 0.5) > 5 * normal, "narrow");
    expect(statistic(x * 0.0) > 20 * normal, "collapsed");
  });
}

// Pairs on half a circle, whose mean is not its center, far more than are compared at once, with known neighbours.

TEST_CASE("KoLeo finds the nearest of thousands of samples on any rank") {
  on_ranks({1, 3}, [](Communicator& comm) {
    constexpr int64_t count = 2400, pairs = count / 2;
    const int64_t begin = count * number(comm) / comm.size(), end = count * (number(comm) + 1) / comm.size();
    std::vector<double> points;
    for (int64_t i = begin; i < end; ++i) {
      const double turn = static_cast<double>(i % pairs) + (i < pairs ? 0 : 0.125);  // pairs are far apart in the batch
      points.push_back(std::cos(turn / pairs * std::numbers::pi) * static_cast<double>(1 + i % 3));
      points.push_back(std::sin(turn / pairs * std::numbers::pi) * static_cast<double>(1 + i % 3));
    }
    const Tensor x = Tensor::from({end - begin, 2}, points, DType::f64);
    const double chord = 2 * std::sin(0.125 / pairs * std::numbers::pi / 2);
    const double loss = loss_of(koleo(x, {}, comm), comm);
    expect(std::abs(loss + std::log(chord + 1e-8)) < 1e-9, "the loss is " + std::to_string(loss));
  });
}

TEST_CASE("KoLeo within each rank is the mean of the ranks' separate losses") {
  on_ranks([](Communicator& comm) {
    for (const Rows& rows : divisions(comm.size())) {
      const auto part = [&](int r) { return data_of(r, {rows[static_cast<size_t>(r)], 3}); };
      double sum = 0, counted = 0;
      run_ranks(1, [&](Communicator& alone) {
        for (int r = 0; r < comm.size(); ++r) {
          const auto n = static_cast<double>(part(r).shape()[0]);
          if (n > 1) sum += n * koleo(part(r), {}, alone).value().item(), counted += n;
        }
      });
      const double loss = loss_of(koleo(part(number(comm)), {.among = Neighbours::of_own_rank}, comm), comm);
      expect_close(scalar(loss), scalar(sum / counted));
    }
  });
}

// Pairs whose unit vectors differ by 2^-18, of elements that f32 rounds to 2^-25.
TEST_CASE("KoLeo in f32 of features with a large common mean finds the neighbours of f64") {
  on_ranks({1, 3}, [](Communicator& comm) {
    const auto stream = static_cast<uint64_t>(number(comm));
    const Var far = Tensor::normal({20, 16}, {2, stream}, 0x1p17, 4),
              near = Tensor::normal({20, 16}, {3, stream}, 0, 1);
    const Tensor x = concat({far, far + near}, 0).value();
    const auto gradient = [&](const Tensor& features) {
      Tape tape;
      const Var watched = tape.watch(features);
      return tape.gradient(koleo(watched, {}, comm), {watched})[0].value().to(DType::f64);
    };
    const Tensor exact = gradient(x.to(DType::f64));
    const double error = norm(Var(gradient(x)) - exact).value().item() / norm(Var(exact)).value().item();
    expect(error < 0.05, "the gradient is off by " + std::to_string(error));
  });
}

TEST_CASE("KoLeo of equal features is finite and has no gradient") {
  on_ranks({1, 2}, [](Communicator& comm) {
    Tape tape;
    const Var x = tape.watch(Tensor::full({3, 4}, 2, DType::f64));
    const Var loss = koleo(x, {}, comm);
    expect(std::abs(loss_of(loss, comm) + std::log(1e-8)) < 1, "the loss is finite");
    expect_close(tape.gradient(loss, {x})[0], Tensor::zeros({3, 4}, DType::f64));
  });
}

}  // namespace test_regularizers
